package retryafter_test

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/retryafter-go/retryafter"
)

func TestATraceInTheContextIsEnough(t *testing.T) {
	inBubble(t, []reply{{status: 503}, {err: io.EOF}, {status: 200}}, func(t *testing.T, s *script, tr *retryafter.Transport) {
		var got []string
		ctx := retryafter.WithTrace(t.Context(), &retryafter.Trace{
			AttemptDone: func(a retryafter.Attempt) { got = append(got, fmt.Sprint("attempt ", a.LogValue())) },
			Waiting:     func(w retryafter.WaitInfo) { got = append(got, fmt.Sprint("waiting ", w.Wait)) },
			Done:        func(_ *http.Request, r retryafter.Report) { got = append(got, "done "+r.Stop.String()) },
		})
		if again := retryafter.WithTrace(ctx, nil); again != ctx {
			t.Error("a nil Trace makes another context")
		}
		if _, err := tr.RoundTrip(get(retryafter.WithTrace(ctx, nil))); err != nil {
			t.Fatal(err)
		}
		want := []string{
			"attempt [number=1 elapsed=0s status=503]", "waiting 1s",
			"attempt [number=2 elapsed=1s error=EOF]", "waiting 2s",
			"attempt [number=3 elapsed=3s status=200]", "done Final",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
