package retryafter

// brokenConnection is empty: Plan 9 names its errors by text.
var brokenConnection []error
