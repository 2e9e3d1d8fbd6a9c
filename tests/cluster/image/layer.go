package main

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
	"time"
)

// Symbolic links followed before a path is given up.
const maxLinks = 16

// layer is the root of a container: everything below usr, as today's Debian has it.
type layer struct {
	machine machine
	files   map[string][]byte
	modes   map[string]int64
	links   map[string]string
	folders map[string]int64
}

func newLayer(of machine) *layer {
	return &layer{
		machine: of,
		files:   map[string][]byte{},
		modes:   map[string]int64{},
		links:   map[string]string{"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"},
		folders: map[string]int64{"tmp": 0o1777, "etc": 0o755, "usr/bin": 0o755, "usr/sbin": 0o755, "usr/lib": 0o755, "usr/lib64": 0o755},
	}
}

// inUsr is where a path lies in a root in which /bin, /sbin and /lib are links into /usr.
func inUsr(name string) string {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	top, _, _ := strings.Cut(name, "/")
	switch top {
	case "bin", "sbin", "lib", "lib64":
		return "usr/" + name
	}
	return name
}

// find is the file behind a path below a root, whatever that root has merged into usr.
func find(root, name string) (string, error) {
	for range maxLinks {
		candidates := []string{filepath.Join(root, name)}
		if clean := strings.TrimPrefix(path.Clean("/"+name), "/"); inUsr(clean) != clean {
			candidates = append(candidates, filepath.Join(root, inUsr(clean)))
		} else {
			candidates = append(candidates, filepath.Join(root, strings.TrimPrefix(clean, "usr/")))
		}
		next := ""
		for _, candidate := range candidates {
			info, err := os.Lstat(candidate)
			if err != nil {
				continue
			}
			if info.Mode()&fs.ModeSymlink == 0 {
				return candidate, nil
			}
			target, err := os.Readlink(candidate)
			if err != nil {
				return "", err
			}
			if next = target; !path.IsAbs(target) {
				next = path.Join(path.Dir(name), target)
			}
			break
		}
		if next == "" {
			return "", fmt.Errorf("%s: not below %s: %w", name, root, fs.ErrNotExist)
		}
		name = next
	}
	return "", fmt.Errorf("%s: more than %d symbolic links", name, maxLinks)
}

// addProgram takes a program along, its loader and every library that it or one of them asks for.
func (l *layer) addProgram(root, source, target string) error {
	return l.addELF(root, source, inUsr(target))
}

// addLibrary takes a library along from one of the folders that the loader looks into.
func (l *layer) addLibrary(root, name string) error {
	for _, folder := range []string{"usr/lib/" + l.machine.triplet, "usr/lib"} {
		if _, err := find(root, folder+"/"+name); err == nil {
			return l.addELF(root, folder+"/"+name, folder+"/"+name)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return fmt.Errorf("library %s: not below %s", name, root)
}

func (l *layer) addELF(root, source, target string) error {
	if _, known := l.files[target]; known {
		return nil
	}
	file, err := find(root, source)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	l.files[target], l.modes[target] = content, 0o755
	binary, err := elf.NewFile(bytes.NewReader(content))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	libraries, err := binary.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for _, library := range libraries {
		if library == path.Base(l.machine.loader) {
			continue
		}
		if err := l.addLibrary(root, library); err != nil {
			return fmt.Errorf("%s: %w", source, err)
		}
	}
	for _, segment := range binary.Progs {
		if segment.Type == elf.PT_INTERP {
			return l.addELF(root, l.machine.loader, inUsr(l.machine.loader))
		}
	}
	return nil
}

// addAccounts writes who there is besides root, and tells whom the image runs as.
func (l *layer) addAccounts(account string) (string, error) {
	passwd, group, user := "root:x:0:0:root:/root:/bin/sh\n", "root:x:0:\n", ""
	if account != "" {
		name, id, found := strings.Cut(account, ":")
		if !found {
			return "", fmt.Errorf("account %s: not NAME:ID", account)
		}
		passwd += fmt.Sprintf("%s:x:%s:%s::/:/bin/sh\n", name, id, id)
		group += fmt.Sprintf("%s:x:%s:\n", name, id)
		user = id + ":" + id
	}
	for file, text := range map[string]string{"etc/passwd": passwd, "etc/group": group} {
		l.files[file], l.modes[file] = []byte(text), 0o644
	}
	return user, nil
}

// bytes is the layer as an archive: sorted, root's, from the beginning of time.
func (l *layer) bytes() ([]byte, error) {
	headers := map[string]*tar.Header{}
	for name, mode := range l.folders {
		headers[name] = &tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode}
	}
	for name, target := range l.links {
		headers[name] = &tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777}
	}
	for name, content := range l.files {
		headers[name] = &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: l.modes[name], Size: int64(len(content))}
	}
	for name := range headers {
		for above := path.Dir(name); above != "."; above = path.Dir(above) {
			if headers[above] == nil {
				headers[above] = &tar.Header{Typeflag: tar.TypeDir, Name: above + "/", Mode: 0o755}
			}
		}
	}
	names := make([]string, 0, len(headers))
	for name := range headers {
		names = append(names, name)
	}
	sort.Strings(names)

	var buffer bytes.Buffer
	archive := tar.NewWriter(&buffer)
	for _, name := range names {
		header := headers[name]
		header.ModTime = time.Unix(0, 0)
		if err := archive.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := archive.Write(l.files[name]); err != nil {
			return nil, err
		}
	}
	return buffer.Bytes(), archive.Close()
}
