package otelretryafter

import (
	"runtime/debug"
	"slices"
	"sync"
)

// version is that of this module in the program, as the go command has noted it:
// "(devel)" where it is built from its sources, "" where nothing was noted.
var version = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return versionIn(info)
})

func versionIn(info *debug.BuildInfo) string {
	for _, m := range slices.Concat(info.Deps, []*debug.Module{&info.Main}) {
		if m.Path != scope {
			continue
		}
		if m.Replace != nil {
			m = m.Replace
		}
		return m.Version
	}
	return ""
}
