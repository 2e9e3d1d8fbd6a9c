package main

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"
)

const media = "application/vnd.oci.image."

// runs is what a container of the image starts.
type runs struct {
	Entrypoint []string `json:"Entrypoint,omitempty"`
	Cmd        []string `json:"Cmd,omitempty"`
	User       string   `json:"User,omitempty"`
	WorkingDir string   `json:"WorkingDir,omitempty"`
	Env        []string `json:"Env,omitempty"`
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    map[string]string `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type manifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        *descriptor  `json:"config,omitempty"`
	Layers        []descriptor `json:"layers,omitempty"`
	Manifests     []descriptor `json:"manifests,omitempty"`
}

// entries are the files of an OCI layout.
type entries map[string][]byte

// add puts a blob under its digest.
func (e entries) add(kind string, content []byte) descriptor {
	sum := sha256.Sum256(content)
	digest := hex.EncodeToString(sum[:])
	e["blobs/sha256/"+digest] = content
	return descriptor{MediaType: media + kind, Digest: "sha256:" + digest, Size: len(content)}
}

func (e entries) addJSON(kind string, value any) (descriptor, error) {
	content, err := json.Marshal(value)
	if err != nil {
		return descriptor{}, err
	}
	return e.add(kind, content), nil
}

// write makes the file: an OCI layout with one image in it, under the name that containerd is to know it by.
func write(out, name string, of machine, layer []byte, how runs) error {
	files := entries{"oci-layout": []byte(`{"imageLayoutVersion":"1.0.0"}`)}
	stack := files.add("layer.v1.tar", layer)
	config, err := files.addJSON("config.v1+json", map[string]any{"architecture": of.name, "os": "linux", "config": how,
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{stack.Digest}}})
	if err != nil {
		return err
	}
	image, err := files.addJSON("manifest.v1+json", manifest{SchemaVersion: 2, MediaType: media + "manifest.v1+json",
		Config: &config, Layers: []descriptor{stack}})
	if err != nil {
		return err
	}
	image.Platform = map[string]string{"architecture": of.name, "os": "linux"}
	image.Annotations = map[string]string{"io.containerd.image.name": name,
		"org.opencontainers.image.ref.name": name[strings.LastIndex(name, ":")+1:]}
	index, err := json.Marshal(manifest{SchemaVersion: 2, MediaType: media + "index.v1+json", Manifests: []descriptor{image}})
	if err != nil {
		return err
	}
	files["index.json"] = index
	return files.writeTo(out)
}

// writeTo writes the files beside the target and gives them its name when they are whole.
func (e entries) writeTo(out string) error {
	names := make([]string, 0, len(e))
	for name := range e {
		names = append(names, name)
	}
	sort.Strings(names)
	file, err := os.CreateTemp(filepath.Dir(out), "partial-")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	archive := tar.NewWriter(file)
	for _, name := range names {
		header := tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(e[name])), ModTime: time.Unix(0, 0)}
		if err := archive.WriteHeader(&header); err != nil {
			return err
		}
		if _, err := archive.Write(e[name]); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return os.Rename(file.Name(), out)
}
