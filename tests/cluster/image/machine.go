package main

import "fmt"

// machine is a kind of processor, and where Debian has its libraries.
type machine struct {
	name, triplet, loader string
}

// machineOf is the machine of a name of Go's.
func machineOf(name string) (machine, error) {
	switch name {
	case "amd64":
		return machine{name, "x86_64-linux-gnu", "/lib64/ld-linux-x86-64.so.2"}, nil
	case "arm64":
		return machine{name, "aarch64-linux-gnu", "/lib/ld-linux-aarch64.so.1"}, nil
	}
	return machine{}, fmt.Errorf("machine %q: neither amd64 nor arm64", name)
}
