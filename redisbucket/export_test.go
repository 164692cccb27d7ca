package redisbucket

// Scripts are the texts that Redis runs, by their digests.
func Scripts() map[string]string {
	all := make(map[string]string)
	for _, s := range []*script{takeScript, holdScript, heldScript} {
		all[s.digest] = s.text
	}
	return all
}

// NameOf is the key in Redis.
var NameOf = nameOf

// KeyOf is what a Keyed charges a request to.
var KeyOf = keyOf

// Units are what a meter counts in.
func (b *Bucket) Units() (flow, token, size int64) {
	if err := b.open(); err != nil {
		panic(err)
	}
	return b.core.meter.flow, b.core.meter.token, b.core.meter.size
}
