package clients

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/retryafter-go/retryafter"
)

// awsRetryer lets the SDK say what is worth another attempt, and policy when.
// The SDK signs each attempt anew and rewinds its body.
type awsRetryer struct {
	aws.RetryerV2
	policy retryafter.Policy
}

func newAWSRetryer(p retryafter.Policy) awsRetryer {
	p.Retry = func(retryafter.Attempt) bool { return true } // IsErrorRetryable was asked before
	return awsRetryer{retry.NewStandard(), p}
}

func (awsRetryer) MaxAttempts() int { return 0 } // as many as policy says

func (r awsRetryer) RetryDelay(attempt int, err error) (time.Duration, error) {
	a := retryafter.Attempt{Number: attempt, Err: err, Received: time.Now()}
	if failed, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
		a.StatusCode, a.Header, a.Err = failed.Response.StatusCode, failed.Response.Header, nil
	}
	d := r.policy.Decide(a, retryafter.Call{})
	if !d.Retry {
		return 0, fmt.Errorf("%v, the wait would be %v: %w", d.Reason, d.Wait, err)
	}
	return d.Wait, nil
}

func newS3ByTheSDK(conf aws.Config, p retryafter.Policy) *s3.Client {
	return s3.NewFromConfig(conf, func(o *s3.Options) { o.Retryer = newAWSRetryer(p) })
}

func newS3ByTheTransport(conf aws.Config, t *retryafter.Transport) *s3.Client {
	return s3.NewFromConfig(conf, func(o *s3.Options) {
		o.Retryer = aws.NopRetryer{}
		o.HTTPClient = &http.Client{Transport: t}
	})
}

// signer signs each attempt anew, as the Base of a Transport.
type signer struct {
	credentials aws.CredentialsProvider
	region      string
	next        http.RoundTripper
}

func (s signer) RoundTrip(req *http.Request) (*http.Response, error) {
	c, err := s.credentials.Retrieve(req.Context())
	if err == nil {
		req = req.Clone(req.Context())
		req.Header.Set("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD")
		err = v4.NewSigner().SignHTTP(req.Context(), c, req, "UNSIGNED-PAYLOAD", "s3", s.region, time.Now())
	}
	if err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, err
	}
	return s.next.RoundTrip(req)
}

const slowDown = `<?xml version="1.0" encoding="UTF-8"?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>`

func awsConfig(endpoint string) aws.Config {
	return aws.Config{
		Region:       "eu-central-1",
		Credentials:  credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", ""),
		BaseEndpoint: aws.String(endpoint),
	}
}

func getObject(t *testing.T, c *s3.Client) error {
	t.Helper()
	out, err := c.GetObject(t.Context(), &s3.GetObjectInput{Bucket: aws.String("b"), Key: aws.String("k")})
	if err != nil {
		return err
	}
	defer out.Body.Close()
	b, err := io.ReadAll(out.Body)
	if string(b) != "object" {
		t.Errorf("%q", b)
	}
	return err
}

// dates are the instants at which the attempts were signed.
func dates(t *testing.T, got []request) (signed []time.Time) {
	t.Helper()
	for i, r := range got {
		d, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
		if err != nil {
			t.Fatalf("attempt %d: %v", i+1, err)
		}
		signed = append(signed, d)
	}
	return signed
}

func TestS3ByTheTransportRepeatsReadsWithTheOldSignature(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := answers(reply(503, slowDown, "Retry-After", "1200"), reply(200, "object"))
		c := newS3ByTheTransport(awsConfig("http://s3.test"), &retryafter.Transport{Base: f, Policy: retryafter.Policy{MaxWait: time.Hour}})
		if err := getObject(t, c); err != nil {
			t.Fatal(err)
		}
		got := f.want(t, 2)
		wantWait(t, got, 2, 20*time.Minute)
		if d := dates(t, got); !d[1].Equal(d[0]) || got[0].Header.Get("Authorization") != got[1].Header.Get("Authorization") {
			t.Errorf("signed at %v", d)
		}
	})
}

func TestS3ByTheSDKSignsEachAttemptAnewWhenTheServerSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := answers(reply(503, slowDown, "Retry-After", "1200"), reply(200, "object"))
		conf := awsConfig("http://s3.test")
		conf.HTTPClient = &http.Client{Transport: f}
		if err := getObject(t, newS3ByTheSDK(conf, retryafter.Policy{MaxWait: time.Hour})); err != nil {
			t.Fatal(err)
		}
		got := f.want(t, 2)
		wantWait(t, got, 2, 20*time.Minute)
		if d := dates(t, got); d[1].Sub(d[0]) < 20*time.Minute {
			t.Errorf("signed at %v", d)
		}
	})
}

func TestS3ByTheSDKEndsWhereTheWaitIsTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := answers(reply(503, slowDown, "Retry-After", "3600"))
		conf := awsConfig("http://s3.test")
		conf.HTTPClient = &http.Client{Transport: f}
		start := time.Now()
		err := getObject(t, newS3ByTheSDK(conf, retryafter.Policy{Jitter: retryafter.NoJitter}))
		if err == nil || !strings.Contains(err.Error(), "WaitTooLong, the wait would be 1h0m0s") || !strings.Contains(err.Error(), "SlowDown") {
			t.Errorf("%v", err)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("after %v", took)
		}
		f.want(t, 1)
	})
}

func TestS3ByTheSDKRepeatsWhatTheSDKSaysAsOftenAsThePolicySays(t *testing.T) {
	for _, c := range []struct {
		max, sent int
		fails     answer
	}{
		{0, 3, reply(503, slowDown)},
		{5, 5, reply(503, slowDown)},
		{0, 3, reply(400, strings.ReplaceAll(slowDown, "SlowDown", "RequestTimeout"))},
		{0, 1, reply(400, strings.ReplaceAll(slowDown, "SlowDown", "InvalidRequest"))},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := answers(c.fails)
			conf := awsConfig("http://s3.test")
			conf.HTTPClient = &http.Client{Transport: f}
			if err := getObject(t, newS3ByTheSDK(conf, retryafter.Policy{MaxAttempts: c.max})); err == nil {
				t.Error("no error")
			}
			f.want(t, c.sent)
		})
	}
}

func TestS3ByTheSDKPassesALimiterBeneathWithEachAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := answers(reply(503, slowDown, "Retry-After", "1"), reply(200, "object"))
		conf := awsConfig("http://s3.test")
		conf.HTTPClient = &http.Client{Transport: &retryafter.Transport{
			Base:    f,
			Policy:  retryafter.Policy{MaxAttempts: 1},
			Limiter: &retryafter.Bucket{Capacity: 1, Rate: retryafter.PerMinute(1)},
		}}
		if err := getObject(t, newS3ByTheSDK(conf, retryafter.Policy{})); err != nil {
			t.Fatal(err)
		}
		wantWait(t, f.want(t, 2), 2, time.Minute)
	})
}

func TestS3ByTheSDKWaitsItsOwnWayWithoutUs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := answers(reply(503, slowDown, "Retry-After", "1200"), reply(200, "object"))
		conf := awsConfig("http://s3.test")
		conf.HTTPClient = &http.Client{Transport: f}
		if err := getObject(t, s3.NewFromConfig(conf)); err != nil {
			t.Fatal(err)
		}
		got := f.want(t, 2)
		if gap := got[1].At.Sub(got[0].At); gap >= 20*time.Minute {
			t.Errorf("the SDK waited %v: it has come to read Retry-After", gap)
		}
	})
}

func TestS3WritesNeedTheSDKToRepeatThem(t *testing.T) {
	text := strings.Repeat("0123456789", 10_000)
	put := func(c *s3.Client) error {
		_, err := c.PutObject(t.Context(), &s3.PutObjectInput{Bucket: aws.String("b"), Key: aws.String("k"), Body: file(t, text)})
		return err
	}
	f := answers(reply(503, slowDown, "Retry-After", "0"), reply(200, ""))
	u, base := listen(t, f)
	conf := awsConfig(u)

	err := put(newS3ByTheTransport(conf, atOnce(base)))
	failed, ok := errors.AsType[*smithyhttp.ResponseError](err)
	if !ok {
		t.Fatal(err)
	}
	wantReport(t, failed.Response.Response, 1, retryafter.BodyNotReplayable)
	f.wantBodies(t, 1, text)

	f = answers(reply(503, slowDown, "Retry-After", "0"), reply(200, ""))
	u, base = listen(t, f)
	conf = awsConfig(u)
	conf.HTTPClient = &http.Client{Transport: base}
	if err := put(newS3ByTheSDK(conf, atOnce(nil).Policy)); err != nil {
		t.Fatal(err)
	}
	f.wantBodies(t, 2, text)
	sum := sha256.Sum256([]byte(text))
	for i, r := range f.requests() {
		if got := r.Header.Get("X-Amz-Content-Sha256"); got != hex.EncodeToString(sum[:]) {
			t.Errorf("attempt %d signed the body as %s", i+1, got)
		}
	}
}

func TestS3ByTheSDKStopsWaitingWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := answers(reply(503, slowDown, "Retry-After", "60"))
		conf := awsConfig("http://s3.test")
		conf.HTTPClient = &http.Client{Transport: f}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := newS3ByTheSDK(conf, retryafter.Policy{}).GetObject(ctx, &s3.GetObjectInput{Bucket: aws.String("b"), Key: aws.String("k")})
		if _, ok := errors.AsType[*aws.RequestCanceledError](err); !ok || time.Since(start) != time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

func TestASignerInsideSignsEachAttemptAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := answers(reply(503, slowDown, "Retry-After", "1200"), reply(200, ""))
		conf := awsConfig("http://s3.test")
		c := &http.Client{Transport: &retryafter.Transport{
			Base:   signer{conf.Credentials, conf.Region, f},
			Policy: retryafter.Policy{MaxWait: time.Hour},
		}}
		req, err := http.NewRequestWithContext(t.Context(), "PUT", "http://s3.test/b/k", bytes.NewReader([]byte("object")))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Do(req)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%v, %v", resp, err)
		}
		f.wantBodies(t, 2, "object")
		got := f.requests()
		if d := dates(t, got); d[1].Sub(d[0]) < 20*time.Minute || got[0].Header.Get("Authorization") == got[1].Header.Get("Authorization") {
			t.Errorf("signed at %v", d)
		}
		if req.Header.Get("Authorization") != "" {
			t.Error("the caller's request was written to")
		}
	})
}
