package main

const (
	triplet = "x86_64-linux-gnu"
	loader  = "/lib64/ld-linux-x86-64.so.2"
)
