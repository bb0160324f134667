package wire

import "time"

// SecretScope says who sets the value of a secret.
type SecretScope string

// The scopes of secrets.
const (
	SecretOfOperator SecretScope = "operator" // the value comes from the configuration
	SecretOfUser     SecretScope = "user"     // each user has a value of their own
)

// A Secret is inserted into HTTP requests of plugins. Its value is never returned.
type Secret struct {
	Name  string      `json:"name"`
	Scope SecretScope `json:"scope"`
	Hosts []string    `json:"hosts"`           // hosts that may receive the value
	Set   bool        `json:"set"`             // whether there is a value that can be decrypted
	SetAt time.Time   `json:"set_at,omitzero"` // when a user set the value
}

// Secrets is the response body of GET /v1/secrets: the secrets that a user can set, sorted
// by name. The operator also gets those of the configuration.
type Secrets struct {
	Secrets []Secret `json:"secrets"`
}

// SecretValue is the request body of PUT /v1/secrets/{secret}.
type SecretValue struct {
	Value string `json:"value"` // 6 to 16,384 bytes without control characters
}
