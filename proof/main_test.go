package proof

import (
	"flag"
	"os"
	"testing"
)

// TestMain raises the number of checks, which are cheap, above what rapid has
// as its default, unless somebody asked for a number.
func TestMain(m *testing.M) {
	flag.Parse()
	f := flag.Lookup("rapid.checks")
	if _, asked := os.LookupEnv("RAPID_CHECKS"); !asked && f.Value.String() == f.DefValue {
		f.Value.Set("1000")
	}
	os.Exit(m.Run())
}
