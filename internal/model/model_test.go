package model

import (
	"net/http"
	"testing"

	"github.com/retryafter-go/retryafter/fixtures"
)

func TestEveryVector(t *testing.T) {
	for _, v := range fixtures.HeaderValues() {
		t.Run(v.ID, func(t *testing.T) {
			h := http.Header{"Retry-After": v.Lines, "Date": v.Date}
			if v.Age != nil {
				h["Age"] = v.Age
			}
			got := FromHeader(h, v.Received)
			want := Reading{Form: v.Form, Delay: v.Delay, Date: v.Instant}
			if v.Form == "none" {
				want.Form = ""
			}
			if got.Form != want.Form || got.Delay != want.Delay || !got.Date.Equal(want.Date) {
				t.Errorf("%q: got %+v, want %+v", v.Lines, got, want)
			}
			if len(v.Lines) == 1 && v.Date == nil {
				if alone := Parse(v.Lines[0], v.Received); alone != got {
					t.Errorf("%q alone: got %+v, want %+v", v.Lines[0], alone, got)
				}
			}
		})
	}
}
