package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"golang.org/x/term"
)

// longestLine is what net/http takes for a whole header by default: no
// Retry-After that it lets through is longer.
const longestLine = 1 << 20

// given gives values that can't fail.
func given(values []string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for _, v := range values {
			if !yield(v, nil) {
				return
			}
		}
	}
}

// lines gives each line of f, without its end, as soon as it is there. An error
// is the last that it gives.
func lines(f *os.File) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if term.IsTerminal(int(f.Fd())) { // where someone may be unaware that they are waited for
			fmt.Fprintln(os.Stderr, "retryafter: reading values from the terminal, one a line")
		}
		s := bufio.NewScanner(f)
		s.Buffer(nil, longestLine+len("\r\n"))
		number := 1
		for ; s.Scan(); number++ {
			if !yield(s.Text(), nil) {
				return
			}
		}
		switch err := s.Err(); {
		case errors.Is(err, bufio.ErrTooLong):
			yield("", fmt.Errorf("standard input: line %d is longer than %d bytes", number, longestLine))
		case err != nil && !errors.Is(err, io.EOF):
			yield("", fmt.Errorf("standard input: %w", err))
		}
	}
}
