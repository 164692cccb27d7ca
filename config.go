package retryafter

// A ConfigError reports a setting that makes no sense. It is returned by the
// first use of what was configured, before anything is sent, charged or slept.
type ConfigError struct {
	Field   string // the setting, as in "Bucket.Capacity"
	Value   string // what it was set to
	Problem string // what it must be, as in "must be positive"
}

func (e *ConfigError) Error() string {
	return "retryafter: " + e.Field + " is " + e.Value + ": " + e.Problem
}
