package further

import (
	"testing"

	"github.com/retryafter-go/retryafter/proof/mutate/testdata/tiny"
)

func TestTwenty(t *testing.T) {
	if got := tiny.Grade(20); got != 2 {
		t.Errorf("Grade(20) = %d, want 2", got)
	}
}
