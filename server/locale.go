package server

import (
	"fmt"
	"regexp"

	"github.com/toolhost/toolhost/pkg/background"
)

// MaxLocale bounds the locale of a call or a run, in bytes.
const MaxLocale = 64

// localeText matches the characters of BCP 47.
var localeText = regexp.MustCompile(`^[A-Za-z0-9]+(-[A-Za-z0-9]+)*$`)

// CheckLocale returns an error for an invalid locale. An empty one is valid.
func CheckLocale(locale string) error {
	switch {
	case locale == "":
		return nil
	case len(locale) > MaxLocale:
		return &background.FieldError{Field: "locale", Problem: fmt.Sprintf("longer than %d bytes", MaxLocale)}
	case !localeText.MatchString(locale):
		return &background.FieldError{Field: "locale", Problem: "expected a language of BCP 47, such as de or de-CH"}
	}
	return nil
}
