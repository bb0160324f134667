package egress

import (
	"compress/flate"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
)

// proxyError is the status with which a proxy refused to connect.
type proxyError int

func (e proxyError) Error() string { return fmt.Sprintf("the egress proxy answered %d", int(e)) }

// problemOf describes an error without the addresses, names and bytes in its text,
// which belong to the operator's network or come from the server.
func problemOf(err error) string {
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		switch {
		case dns.IsNotFound:
			return "no such host"
		case dns.IsTimeout:
			return "the name was not resolved in time"
		}
		return "the name could not be resolved"
	}
	if proxy, ok := errors.AsType[proxyError](err); ok {
		return proxy.Error()
	}
	if problem := tlsProblem(err); problem != "" {
		return problem
	}
	if netErr, ok := errors.AsType[net.Error](err); errors.Is(err, context.DeadlineExceeded) || ok && netErr.Timeout() {
		return "no complete response in time"
	}

	switch corrupt := flate.CorruptInputError(0); {
	case headerTooLarge(err):
		return fmt.Sprintf("the response header is larger than %d bytes, or corrupt", MaxHeaderBytes)
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "the server reset the connection"
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		return "the host cannot be reached"
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum), errors.As(err, &corrupt):
		return "the compressed body is corrupt"
	case is[streamError](err), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return "the server closed the connection before the response was complete"
	}
	return "the response is not valid HTTP, or the connection failed"
}

// streamError has the shape into which net/http converts its HTTP/2 error of that
// name.
type streamError struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (e streamError) Error() string { return fmt.Sprintf("stream error %d", e.Code) }

// headerTooLarge recognizes errors of net/http by their text, because they have no
// type.
func headerTooLarge(err error) bool {
	for _, text := range []string{"response headers exceeded", "header list larger than", "header list too large", "too many 1xx", "COMPRESSION_ERROR"} {
		if strings.Contains(err.Error(), text) {
			return true
		}
	}
	return false
}

func tlsProblem(err error) string {
	invalid, _ := errors.AsType[x509.CertificateInvalidError](err)
	switch {
	case is[x509.HostnameError](err):
		return "its certificate is for another host"
	case is[x509.UnknownAuthorityError](err):
		return "its certificate is not signed by a trusted authority"
	case invalid.Reason == x509.Expired:
		return "its certificate has expired or is not valid yet"
	case is[x509.CertificateInvalidError](err), is[*tls.CertificateVerificationError](err):
		return "its certificate is not valid"
	case is[tls.RecordHeaderError](err):
		return "the server does not speak TLS on this port"
	case is[tls.AlertError](err):
		return "the TLS handshake failed"
	}
	return ""
}

// is reports whether an error of type T is in the tree of err.
func is[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}
