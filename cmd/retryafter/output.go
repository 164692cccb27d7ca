package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
)

// An output is a file that is written to. That of a regular file is a temporary
// one beside it until commit.
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
	if f, err := openDescriptor(name); f != nil || err != nil {
		return &output{File: f}, err
	}
	mode := fs.FileMode(0o666)
	replaces := false
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
		mode, replaces = is.Mode().Perm(), true
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
	signal.Ignore(syscall.SIGPIPE) // it would keep from discarding
	o := &output{f, name}
	if replaces {
		if err := f.Chmod(mode); err != nil { // what the umask took away
			o.discard()
			return nil, err
		}
	}
	return o, nil
}

// descriptors are the directories that stand for what a process has open.
var descriptors = regexp.MustCompile(`^(?:/dev/fd|/proc/(\d+)(?:/task/\d+)?/fd)$`)

// openDescriptor gives what name stands for where it leads to a descriptor: to
// open that by its name would begin another at the front of the file, and to
// resolve it would replace the file. Without one it gives nil.
func openDescriptor(name string) (*os.File, error) {
	for at, links := name, 0; links < 255; links++ {
		dir, base := filepath.Split(at)
		dir, err := filepath.EvalSymlinks(dir + ".")
		if err == nil {
			dir, err = filepath.Abs(dir)
		}
		if err != nil {
			return nil, nil // to be told of what is done with name
		}
		if of := descriptors.FindStringSubmatch(dir); of != nil {
			self, _ := os.Readlink("/proc/self")
			if of[1] != "" && of[1] != self {
				return os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0) // another process's
			}
			return descriptor(base)
		}
		to, err := os.Readlink(dir + string(filepath.Separator) + base)
		if err != nil {
			return nil, nil
		}
		if at = to; !filepath.IsAbs(to) {
			at = dir + string(filepath.Separator) + to
		}
	}
	return nil, nil
}

// descriptor is the one with that number, which must be open for writing.
func descriptor(number string) (*os.File, error) {
	n, err := strconv.Atoi(number)
	if err != nil || strconv.Itoa(n) != number { // 01 is no file there
		return nil, nil
	}
	f := os.Stdout
	switch n {
	case 1:
	case 2:
		f = os.Stderr
	default:
		f = os.NewFile(uintptr(n), "/dev/fd/"+number)
	}
	if _, err := f.Write(nil); err != nil {
		return nil, err
	}
	return f, nil
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
