// Command retryafter shows what the library does: demo drives real requests
// against a server of its own, explain reads Retry-After values, get fetches
// what it is told to, simulate sets rules for coming back side by side.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
)

// What the command exits with, beside 0.
const (
	statusNo          status = 1   // the answer is no: a promise broken, a value unreadable
	statusTrouble     status = 2   // no answer: wrong usage, or reading or writing failed
	statusInterrupted status = 130 // as a shell has it for SIGINT
)

// A status is an error that has been told already.
type status int

func (s status) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

type command struct {
	Demo     demoCommand      `cmd:"" help:"Drive real requests against a server on this machine and show what was waited, and why calls stopped."`
	Explain  explainCommand   `cmd:"" help:"Tell how Retry-After values are read, and what the default policy does with them."`
	Get      getCommand       `cmd:"" help:"Fetch a URL as the library does: wait when the server says so, and say why it gave up."`
	Simulate simulateCommand  `cmd:"" help:"Set rules for coming back side by side, in a model of many clients."`
	Version  kong.VersionFlag `help:"Show the version."`
}

const description = `An HTTP client that comes back when the server said, never earlier, and gives up at once, with its reason, when it can't.`

func main() { os.Exit(int(run(os.Args[1:]))) }

func run(args []string) status {
	log.SetOutput(io.Discard) // net/http's: it would quote servers amid what is told
	var c command
	parser := parserOf(&c)
	args, rest := cutDashes(args)
	if len(args) > 0 && args[0] == "help" {
		args = append(slices.Clone(args[1:]), "--help")
	}
	ctx, err := parser.Parse(joinNegatives(parser.Model, args))
	if err == nil && len(rest) > 0 {
		switch ctx.Selected().Name {
		case "explain":
			c.Explain.Value = append(c.Explain.Value, rest...)
		case "get":
			c.Get.URL = append(c.Get.URL, rest...)
		default:
			err = fmt.Errorf("unexpected argument %s", rest[0])
		}
	}
	if err != nil {
		if wrong, ok := errors.AsType[*kong.ParseError](err); ok {
			ctx = wrong.Context
		}
		return trouble(err, advice(ctx, err))
	}
	err = ctx.Run()
	told, isStatus := errors.AsType[status](err)
	switch {
	case err == nil:
		return 0
	case isStatus:
		return told
	}
	return trouble(err, "")
}

func parserOf(c *command) *kong.Kong {
	return kong.Must(c,
		kong.Name("retryafter"),
		kong.Description(description),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 80}),
		kong.Vars{"version": version()})
}

// interruptible ends with the first signal that asks to end, but for those that
// whoever started it has ignored, as nohup does; a second one kills.
func interruptible() (context.Context, context.CancelFunc) {
	signals := slices.DeleteFunc([]os.Signal{os.Interrupt, syscall.SIGHUP}, signal.Ignored)
	signals = append(signals, syscall.SIGTERM)
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

func trouble(err error, advice string) status {
	fmt.Fprintf(os.Stderr, "retryafter: %v%s\n", err, advice)
	return statusTrouble
}

// cutDashes cuts args at the first --. Kong by itself takes what follows it for
// a value only where no value stands before.
func cutDashes(args []string) (before, after []string) {
	if i := slices.Index(args, "--"); i >= 0 {
		return args[:i], args[i+1:]
	}
	return args, nil
}

var negative = regexp.MustCompile(`^-[.0-9]`)

// joinNegatives joins each flag that takes a value with the negative number after
// it, which kong by itself takes for another flag.
func joinNegatives(model *kong.Application, args []string) (joined []string) {
	valued := map[string]string{} // by what it is called to what it is joined by
	kong.Visit(model, func(node kong.Visitable, next kong.Next) error {
		if flag, ok := node.(*kong.Flag); ok && !flag.IsBool() {
			valued["--"+flag.Name] = "--" + flag.Name
			if flag.Short != 0 {
				valued["-"+string(flag.Short)] = "--" + flag.Name
			}
		}
		return next(nil)
	})
	for i, arg := range args {
		if i > 0 && valued[args[i-1]] != "" && negative.MatchString(arg) {
			joined[len(joined)-1] = valued[args[i-1]] + "=" + arg
			continue
		}
		joined = append(joined, arg)
	}
	return joined
}

// advice is what may help whoever typed a command line that is understood as far
// as ctx.
func advice(ctx *kong.Context, err error) string {
	command := ctx.Selected()
	if command == nil {
		command = ctx.Model.Node
	}
	if command.Name == "explain" {
		switch text := err.Error(); {
		case strings.HasPrefix(text, "unknown flag"):
			return " (a value that begins with - comes after --)"
		case strings.HasPrefix(text, "unexpected argument"):
			return " (flags come before the values or after them, not between)"
		}
	}
	return fmt.Sprintf(" (see %s --help)", command.FullPath())
}

func version() string {
	v := "(devel)"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		v = info.Main.Version
	}
	return "retryafter " + v + " " + runtime.Version()
}
