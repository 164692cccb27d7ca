package otelretryafter

import (
	"runtime/debug"
	"testing"
)

func TestTheVersionIsThatOfTheModuleInTheProgram(t *testing.T) {
	module := func(path, version string) *debug.Module { return &debug.Module{Path: path, Version: version} }
	replaced := module(scope, "v1.2.3")
	replaced.Replace = module("example.com/fork", "v1.2.4")
	local := module(scope, "v1.2.3")
	local.Replace = module("../..", "")
	for name, tt := range map[string]struct {
		main debug.Module
		deps []*debug.Module
		want string
	}{
		"a dependency":          {*module("example.com/program", "v9.9.9"), []*debug.Module{module("example.com/a", "v8.8.8"), module(scope, "v1.2.3")}, "v1.2.3"},
		"replaced by a fork":    {*module("example.com/program", "v9.9.9"), []*debug.Module{replaced}, "v1.2.4"},
		"replaced by a folder":  {*module("example.com/program", "v9.9.9"), []*debug.Module{local}, ""},
		"the program's module":  {*module(scope, "(devel)"), []*debug.Module{module("example.com/a", "v8.8.8")}, "(devel)"},
		"not noted":             {*module("example.com/program", "v9.9.9"), nil, ""},
		"a module that is like": {*module("example.com/program", "v9.9.9"), []*debug.Module{module(scope+"/v2", "v2.0.0")}, ""},
	} {
		if got := versionIn(&debug.BuildInfo{Main: tt.main, Deps: tt.deps}); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
