// Package conformance only names the suite, so that `go mod` keeps what it needs.
package conformance

import _ "k8s.io/kubernetes/test/e2e"
