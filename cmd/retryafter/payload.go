package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
)

// longestInput is how much of what can't be opened again is kept in memory.
const longestInput = 64 << 20

// A payload is a request's body, which can be had again.
type payload struct {
	open func() (io.ReadCloser, error)
	size int64 // 0: no body
}

// payloadOf reads a --data.
func payloadOf(arg string) (payload, error) {
	name, isFile := strings.CutPrefix(arg, "@")
	switch {
	case !isFile:
		return inMemory([]byte(arg)), nil
	case name == "-":
		return keep(os.Stdin, "standard input")
	}
	f, err := os.Open(name)
	if err != nil {
		return payload{}, err
	}
	defer f.Close()
	is, err := f.Stat()
	if err != nil {
		return payload{}, err
	}
	if is.Mode().IsRegular() && is.Size() > 0 {
		return payload{func() (io.ReadCloser, error) { return os.Open(name) }, is.Size()}, nil
	}
	return keep(f, name) // a pipe, or a file whose size is not known
}

func keep(f *os.File, name string) (payload, error) {
	all, err := io.ReadAll(io.LimitReader(f, longestInput+1))
	switch {
	case err != nil:
		return payload{}, err
	case len(all) > longestInput:
		return payload{}, fmt.Errorf("%s is longer than %d bytes, and can't be opened again", name, longestInput)
	}
	return inMemory(all), nil
}

func inMemory(all []byte) payload {
	return payload{func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(all)), nil }, int64(len(all))}
}
