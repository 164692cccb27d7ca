// Package redisserver starts Redis or Valkey servers that nobody else uses, and
// ends them by their process.
package redisserver

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ErrNotInstalled is the error of Start where there is no server to be started.
var ErrNotInstalled = errors.New("neither redis-server nor valkey-server is installed (looked in PATH; REDIS_SERVER may name one)")

// A Server runs on a unix socket in a directory of its own, without
// persistence, and on a loopback port where it was told one.
type Server struct {
	Socket string
	Port   int // 0: none

	dir  string
	args []string
	cmd  *exec.Cmd
	log  bytes.Buffer
}

func path() (string, error) {
	if p := os.Getenv("REDIS_SERVER"); p != "" {
		return p, nil
	}
	for _, name := range []string{"redis-server", "valkey-server"} {
		if p, err := exec.LookPath(name); err == nil {
			return p, nil
		}
	}
	return "", ErrNotInstalled
}

// Start starts a server with args in addition, and waits until it answers.
// port 0 means that it listens on its socket only.
func Start(port int, args ...string) (*Server, error) {
	if _, err := path(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "redisbucket")
	if err != nil {
		return nil, err
	}
	s := &Server{Socket: filepath.Join(dir, "s"), Port: port, dir: dir, args: args}
	if err := s.Run(); err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	return s, nil
}

// Run starts the server again after Kill.
func (s *Server) Run() error {
	p, err := path()
	if err != nil {
		return err
	}
	s.log.Reset()
	s.cmd = exec.Command(p, append([]string{
		"--port", strconv.Itoa(s.Port), "--bind", "127.0.0.1", "--unixsocket", s.Socket, "--unixsocketperm", "700",
		"--dir", s.dir, "--save", "", "--appendonly", "no", "--daemonize", "no",
	}, s.args...)...)
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	if err := s.cmd.Start(); err != nil {
		return err
	}
	end := time.Now().Add(10 * time.Second)
	for {
		err := s.answers()
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			s.Kill()
			return fmt.Errorf("%s did not start: %w\n%s", p, err, s.log.String())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// answers asks whoever listens whether it is the process that was started.
func (s *Server) answers() error {
	info, err := s.Do("INFO server")
	if err == nil && !strings.Contains(info, "process_id:"+strconv.Itoa(s.cmd.Process.Pid)+"\r\n") {
		err = errors.New("another process listens")
	}
	return err
}

// Do sends one command as words with blanks between them, and returns a simple
// or bulk reply.
func (s *Server) Do(command string) (string, error) {
	c, err := net.DialTimeout("unix", s.Socket, time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := fmt.Fprintf(c, "%s\r\n", command); err != nil {
		return "", err
	}
	r := bufio.NewReader(c)
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSpace(line)
	if line[0] == '-' {
		return "", errors.New(line[1:])
	}
	if line[0] != '$' {
		return line[1:], nil
	}
	n, err := strconv.Atoi(line[1:])
	if err != nil || n < 0 {
		return "", err
	}
	bulk := make([]byte, n)
	_, err = io.ReadFull(r, bulk)
	return string(bulk), err
}

// Signal sends sig to the server's process.
func (s *Server) Signal(sig syscall.Signal) error { return s.cmd.Process.Signal(sig) }

// Kill ends the process at once, and waits for it.
func (s *Server) Kill() {
	s.cmd.Process.Kill()
	s.cmd.Wait()
}

// Close ends the process and removes its directory.
func (s *Server) Close() {
	s.Kill()
	os.RemoveAll(s.dir)
}

// A T is what Test needs of a *testing.T.
type T interface {
	Helper()
	Skip(...any)
	Fatal(...any)
	Cleanup(func())
}

// Test starts a server that ends with the test. Where none is installed it
// skips the test, but fails it where the environment has CI=true.
func Test(t T, port int, args ...string) *Server {
	t.Helper()
	s, err := Start(port, args...)
	if errors.Is(err, ErrNotInstalled) && os.Getenv("CI") != "true" {
		t.Skip("not tested, for want of a server: ", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// TestCluster starts three masters that share the slots of a cluster.
func TestCluster(t T) []*Server {
	t.Helper()
	var all []*Server
	for range 3 {
		port, err := freePort()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, Test(t, port, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000"))
	}
	for i, s := range all {
		if _, err := s.Do(fmt.Sprintf("CLUSTER ADDSLOTSRANGE %d %d", i*slots/3, (i+1)*slots/3-1)); err != nil {
			t.Fatal(err)
		}
		if _, err := all[0].Do(fmt.Sprintf("CLUSTER MEET 127.0.0.1 %d", s.Port)); err != nil {
			t.Fatal(err)
		}
	}
	for begin := time.Now(); !formed(all); time.Sleep(20 * time.Millisecond) {
		if time.Since(begin) > 30*time.Second {
			t.Fatal("the cluster did not form")
		}
	}
	return all
}

const slots = 16384

func formed(all []*Server) bool {
	for _, s := range all {
		info, err := s.Do("CLUSTER INFO")
		for _, want := range []string{"cluster_state:ok", "cluster_known_nodes:3", "cluster_size:3"} {
			if err != nil || !strings.Contains(info, want+"\r\n") {
				return false
			}
		}
	}
	return true
}

// Addr is the server's address on the loopback.
func (s *Server) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.Port) }

// freePort returns a loopback port that nobody listens on, nor on the one that
// the nodes of a cluster use beside it.
func freePort() (int, error) {
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, err
		}
		port := l.Addr().(*net.TCPAddr).Port
		l.Close()
		if other, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+10000)); err == nil {
			other.Close()
			return port, nil
		}
	}
	return 0, errors.New("no free port")
}
