package main

import (
	"image/png"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// size FILE WIDTH HEIGHT wants a PNG of that many pixels.
func size(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: size FILE WIDTH HEIGHT")
	}
	is, err := png.DecodeConfig(strings.NewReader(ts.ReadFile(args[0])))
	ts.Check(err)
	if got := []string{strconv.Itoa(is.Width), strconv.Itoa(is.Height)}; got[0] != args[1] || got[1] != args[2] {
		ts.Fatalf("%s has %s pixels, want %s", args[0], got, args[1:])
	}
}
