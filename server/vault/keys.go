package vault

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/toolhost/toolhost/host"
)

// Limits of a key file.
const (
	keySize = 32 // bytes of a key: AES-256
	maxKeys = 32
)

// Keys is the name of a file with the keys that encrypt the secrets of users: one key per
// line, each 32 bytes in base64. The first key encrypts, and all of them decrypt. Put a new
// key before the others. Remove the old ones once the service has started or reloaded with
// the new one. Only the user of this process may be able to read or write the file, which
// [New] reads.
type Keys string

// Errors of keys.
var (
	// ErrNoKeys means that there is no key for secrets of users.
	ErrNoKeys = errors.New("there is no key for secrets of users")
	// ErrOtherKey means that a secret cannot be decrypted: the file does not contain its
	// key, it was encrypted for another user or name, or the encrypted value was changed.
	ErrOtherKey = errors.New("no key can decrypt it")
)

// NewKey returns a new line for a key file.
func NewKey() string {
	key := make([]byte, keySize)
	_, _ = rand.Read(key) // it never fails
	return base64.StdEncoding.EncodeToString(key)
}

// Check reads the file, and returns an error if it is invalid.
func (k Keys) Check() error {
	_, err := k.read()
	return err
}

// key is one of the keys.
type key struct {
	cipher.AEAD
	id [keyID]byte // prefix of the values that the key encrypted
}

// keyID is the number of bytes of a key's digest that identify it.
const keyID = 8

func (k Keys) read() (keys keyring, err error) {
	if k == "" {
		return nil, ErrNoKeys
	}
	text, err := readFile(string(k))
	if errors.Is(err, host.ErrNoSecret) {
		return nil, fmt.Errorf("%w: the file %s does not exist", ErrNoKeys, k)
	}
	if err != nil {
		return nil, err
	}

	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		one, err := newKey(line)
		if err != nil {
			return nil, fmt.Errorf("%s: key %d: %w", k, len(keys)+1, err)
		}
		keys = append(keys, one)
	}
	switch {
	case len(keys) == 0:
		return nil, fmt.Errorf("%w: the file %s is empty", ErrNoKeys, k)
	case len(keys) > maxKeys:
		return nil, fmt.Errorf("%s: want at most %d keys, found %d", k, maxKeys, len(keys))
	}
	return keys, nil
}

func newKey(line string) (key, error) {
	data, err := base64.StdEncoding.DecodeString(line)
	if err != nil || len(data) != keySize {
		return key{}, fmt.Errorf("want %d bytes in base64", keySize) // without quoting the content
	}
	block, err := aes.NewCipher(data)
	if err != nil {
		return key{}, err
	}
	sealer, err := cipher.NewGCMWithRandomNonce(block)
	sum := sha256.Sum256(data)
	return key{sealer, [keyID]byte(sum[:])}, err
}

// sealVersion is the first byte of encrypted values.
const sealVersion = 1

// keyring holds keys in the order of their file.
type keyring []key

// seal encrypts a value with the first key. Decryption needs the same value of about.
func (k keyring) seal(value string, about []byte) ([]byte, error) {
	if len(k) == 0 {
		return nil, ErrNoKeys
	}
	out := append([]byte{sealVersion}, k[0].id[:]...)
	return k[0].Seal(out, nil, []byte(value), about), nil
}

// open decrypts a value. The result old reports whether a key other than the first
// encrypted it.
func (k keyring) open(sealed, about []byte) (value string, old bool, err error) {
	if len(sealed) <= 1+keyID || sealed[0] != sealVersion {
		return "", false, ErrOtherKey
	}
	i := slices.IndexFunc(k, func(one key) bool { return bytes.Equal(one.id[:], sealed[1:1+keyID]) })
	if i < 0 {
		return "", false, ErrOtherKey
	}
	plain, err := k[i].Open(nil, nil, sealed[1+keyID:], about)
	if err != nil {
		return "", false, ErrOtherKey
	}
	return string(plain), i > 0, nil
}

// about returns the data that the secret of a user is bound to.
func about(user, name string) []byte {
	return fmt.Appendf(nil, "toolhost secret %q %q", user, name)
}
