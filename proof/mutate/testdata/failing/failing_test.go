package failing

import "testing"

func TestNever(t *testing.T) { t.Error("as always") }
