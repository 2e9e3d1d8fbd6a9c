package main

const (
	triplet = "aarch64-linux-gnu"
	loader  = "/lib/ld-linux-aarch64.so.1"
)
