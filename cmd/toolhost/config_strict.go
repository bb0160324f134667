package main

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"time"
)

// strict refuses what is not of the type of its key, and says so in the words of
// a configuration. What a text holds is not told: it may be a token.
func strict(from, to reflect.Type, value any) (any, error) {
	switch {
	case from == to:
		return value, nil
	case to == reflect.TypeFor[time.Duration]():
		return strictDuration(value)
	case to == reflect.TypeFor[byteSize]() && from.Kind() != reflect.String: // which reads text itself
		n, err := wholeNumber(value)
		if err != nil {
			err = fmt.Errorf("expected a size such as 64MiB or 1048576, found %s", found(value))
		}
		return n, err
	}
	switch to.Kind() {
	case reflect.Int, reflect.Int64:
		if to != reflect.TypeFor[byteSize]() {
			return wholeNumber(value)
		}
	case reflect.Bool:
		if from.Kind() != reflect.Bool {
			return nil, fmt.Errorf("expected true or false, found %s", found(value))
		}
	case reflect.String:
		if from.Kind() != reflect.String {
			return nil, errors.New("expected a text: put it in quotes if it is one")
		}
	case reflect.Slice:
		if from.Kind() != reflect.Slice {
			return nil, errors.New("expected a list, even of one, such as [a]")
		}
	case reflect.Struct, reflect.Map:
		if from.Kind() != reflect.Map {
			return nil, fmt.Errorf("expected keys and their values, found %s", found(value))
		}
	}
	return value, nil
}

// strictDuration reads a duration, and refuses a number in its place: of what?
// Zero is the same of anything.
func strictDuration(value any) (any, error) {
	if text, ok := value.(string); ok {
		if d, err := time.ParseDuration(text); err == nil {
			return d, nil
		}
	}
	if n, err := wholeNumber(value); err == nil && n == 0 {
		return time.Duration(0), nil
	}
	return nil, fmt.Errorf("expected a duration such as 30s, found %s", found(value))
}

// wholeNumber reads a number, which is a float64 in JSON.
func wholeNumber(value any) (int64, error) {
	switch v := reflect.ValueOf(value); {
	case v.CanInt():
		return v.Int(), nil
	case v.CanFloat() && math.Abs(v.Float()) < 1<<63 && v.Float() == math.Trunc(v.Float()):
		return int64(v.Float()), nil
	}
	return 0, fmt.Errorf("expected a whole number, found %s", found(value))
}

// found is a value that is none for its key.
func found(value any) string {
	switch v := reflect.ValueOf(value); v.Kind() {
	case reflect.Slice:
		return "a list"
	case reflect.Map:
		return "keys below it"
	case reflect.String:
		return fmt.Sprintf("%q", value)
	}
	return fmt.Sprint(value)
}
