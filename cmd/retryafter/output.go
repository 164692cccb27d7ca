package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// An output is where a response is written. That of a regular file is a
// temporary one beside it until commit.
type output struct {
	*os.File
	target string // what commit replaces; "": nothing
}

// openOutput fails where name could not be written later. "" and - are standard
// output.
func openOutput(name string) (*output, error) {
	if name == "" || name == "-" {
		return &output{File: os.Stdout}, nil
	}
	mode := fs.FileMode(0o666)
	switch is, err := os.Stat(name); {
	case err == nil:
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return nil, err
		}
		if !is.Mode().IsRegular() {
			return &output{File: f}, nil
		}
		f.Close()
		if name, err = filepath.EvalSymlinks(name); err != nil {
			return nil, err
		}
		mode = is.Mode().Perm()
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	default:
		if _, err := os.Lstat(name); err == nil {
			return nil, fmt.Errorf("%s is a link to nowhere", name)
		}
	}
	temporary := filepath.Join(filepath.Dir(name), fmt.Sprintf(".retryafter-%016x", rand.Uint64()))
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return nil, fmt.Errorf("%s needs a temporary file beside it: %w", name, err)
	}
	return &output{f, name}, nil
}

// commit makes what was written the target.
func (o *output) commit() error {
	if o.target == "" {
		return nil
	}
	if err := o.Close(); err != nil {
		return err
	}
	if err := os.Rename(o.Name(), o.target); err != nil {
		return err
	}
	o.target = ""
	return nil
}

// discard leaves nothing of what was not committed.
func (o *output) discard() {
	if o.target != "" {
		o.Close()
		os.Remove(o.Name())
	}
}
