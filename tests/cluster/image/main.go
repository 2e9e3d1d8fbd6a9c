// Makes an image out of files, without a container engine: one layer with the programs named, the libraries they ask for, and
// what else a container needs of its root. The same files give the same bytes.
//
//	image -out FILE -name NAME:TAG [-machine amd64|arm64] [-root FOLDER] [-bin SOURCE[=TARGET]]... [-library NAME]... [-link NAME=TARGET]...
//	      [-dir PATH=MODE]... [-account NAME:ID] [-workdir PATH] [-cmd ARGUMENT]... [-- ENTRYPOINT...]
//
// Programs and libraries are taken from below the root, which may be a folder of unpacked packages of another release.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
)

// texts is a flag that may be given several times.
type texts []string

func (t *texts) String() string { return strings.Join(*t, " ") }

func (t *texts) Set(text string) error {
	*t = append(*t, text)
	return nil
}

type wish struct {
	out, name, machine, root, account, workdir   string
	programs, libraries, links, folders, command texts
	entrypoint                                   []string
}

func main() {
	var w wish
	flag.StringVar(&w.out, "out", "", "file to write")
	flag.StringVar(&w.name, "name", "", "name of the image with its tag")
	flag.StringVar(&w.machine, "machine", runtime.GOARCH, "kind of processor that the programs are for")
	flag.StringVar(&w.root, "root", "/", "folder that programs and libraries are taken from")
	flag.StringVar(&w.account, "account", "", "whom the image runs as, NAME:ID; root if it is not said")
	flag.StringVar(&w.workdir, "workdir", "/", "folder it starts in")
	flag.Var(&w.programs, "bin", "program to take along with the libraries it asks for")
	flag.Var(&w.libraries, "library", "library that nobody names but somebody loads")
	flag.Var(&w.links, "link", "symbolic link")
	flag.Var(&w.folders, "dir", "folder, with its mode")
	flag.Var(&w.command, "cmd", "argument that a pod may replace")
	flag.Parse()
	w.entrypoint = flag.Args()
	if err := build(w); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func build(w wish) error {
	if w.out == "" || !strings.Contains(w.name, ":") {
		return fmt.Errorf("-out and -name NAME:TAG are needed")
	}
	machine, err := machineOf(w.machine)
	if err != nil {
		return err
	}
	layer := newLayer(machine)
	for _, program := range w.programs {
		source, target, named := strings.Cut(program, "=")
		if !named {
			target = source
		}
		if err := layer.addProgram(w.root, source, target); err != nil {
			return err
		}
	}
	for _, library := range w.libraries {
		if err := layer.addLibrary(w.root, library); err != nil {
			return err
		}
	}
	for _, link := range w.links {
		path, target, _ := strings.Cut(link, "=")
		layer.links[inUsr(path)] = target
	}
	for _, folder := range w.folders {
		path, mode, _ := strings.Cut(folder, "=")
		bits, err := strconv.ParseInt(mode, 8, 32)
		if err != nil {
			return fmt.Errorf("mode of folder %s: %w", folder, err)
		}
		layer.folders[inUsr(path)] = bits
	}
	user, err := layer.addAccounts(w.account)
	if err != nil {
		return err
	}
	bytes, err := layer.bytes()
	if err != nil {
		return err
	}
	return write(w.out, w.name, machine, bytes, runs{Entrypoint: w.entrypoint, Cmd: w.command, User: user, WorkingDir: w.workdir,
		Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}})
}
