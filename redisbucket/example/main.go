// This program lets two processes spend one budget. It starts a redis-server of
// its own on a unix socket and two children, prints what each was admitted, and
// checks that together they kept to Capacity + Rate·t:
//
//	go run ./example
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/retryafter-go/retryafter"
	"github.com/retryafter-go/retryafter/redisbucket"
	"github.com/retryafter-go/retryafter/redisbucket/goredisclient"
	"github.com/retryafter-go/retryafter/redisbucket/internal/redisserver"
)

const (
	capacity = 20
	perTime  = 50 // tokens a second
	span     = 2 * time.Second
)

func main() {
	run := parent
	if len(os.Args) == 3 && os.Args[1] == "child" {
		run = func() error { return child(os.Args[2]) }
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "example:", err)
		os.Exit(1)
	}
}

func connect(socket string) *redis.Client {
	return redis.NewClient(&redis.Options{Network: "unix", Addr: socket, ContextTimeoutEnabled: true})
}

// child takes from the shared bucket as fast as it can, and prints how often it
// was admitted and refused.
func child(socket string) error {
	rdb := connect(socket)
	defer rdb.Close()
	bucket := &redisbucket.Bucket{
		Client:   goredisclient.New(rdb),
		Key:      "example",
		Capacity: capacity,
		Rate:     retryafter.PerSecond(perTime),
		Timeout:  5 * time.Second, // only for a busy machine
	}
	var all sync.WaitGroup
	var admitted, refused atomic.Int64
	errs := make(chan error, 4)
	for range cap(errs) {
		all.Go(func() {
			for begin := time.Now(); time.Since(begin) < span; {
				switch delay, err := bucket.Take(context.Background(), 1); {
				case err != nil:
					errs <- err
					return
				case delay == 0:
					admitted.Add(1)
				default:
					refused.Add(1)
				}
			}
		})
	}
	all.Wait()
	fmt.Println(admitted.Load(), refused.Load())
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

func parent() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	server, err := redisserver.Start(0)
	if err != nil {
		return err
	}
	defer server.Close()
	rdb := connect(server.Socket)
	defer rdb.Close()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	fmt.Printf("one budget of %d, and %d a second, for two processes that want more\n", capacity, perTime)

	begin, err := rdb.Time(context.Background()).Result()
	if err != nil {
		return err
	}
	var children [2]*exec.Cmd
	var outs [2]bytes.Buffer
	for i := range children {
		children[i] = exec.CommandContext(ctx, self, "child", server.Socket)
		children[i].Stdout = &outs[i]
		children[i].Stderr = io.Writer(os.Stderr)
		if err := children[i].Start(); err != nil {
			return err
		}
	}
	var sum int64
	for i, c := range children {
		if err := c.Wait(); err != nil {
			return err
		}
		admitted, refused, _ := strings.Cut(strings.TrimSpace(outs[i].String()), " ")
		n, err := strconv.ParseInt(admitted, 10, 64)
		if err != nil {
			return err
		}
		sum += n
		fmt.Printf("process %d: %s admitted, %s refused\n", c.Process.Pid, admitted, refused)
	}
	end, err := rdb.Time(context.Background()).Result()
	if err != nil {
		return err
	}
	t := end.Sub(begin)
	bound := capacity + int64(t)*perTime/int64(time.Second)
	fmt.Printf("together:     %d admitted in %.2f s; %d + %d·t is %d\n", sum, t.Seconds(), capacity, perTime, bound)
	if sum > bound {
		return fmt.Errorf("%d admitted, which is more than %d", sum, bound)
	}
	return nil
}
