package wire

import "time"

// SecretScope says whose a secret is.
type SecretScope string

// The scopes.
const (
	SecretOfOperator SecretScope = "operator" // its value comes from the configuration
	SecretOfUser     SecretScope = "user"     // each user has a value of their own
)

// Secret is a secret that goes into HTTP requests of plugins. Nobody is shown its value.
type Secret struct {
	Name  string      `json:"name"`
	Scope SecretScope `json:"scope"`
	Hosts []string    `json:"hosts"`           // that it may go to
	Set   bool        `json:"set"`             // it has a value
	SetAt time.Time   `json:"set_at,omitzero"` // of a user's
}

// Secrets are those of a user, by name; for an operator those of the operator too.
type Secrets struct {
	Secrets []Secret `json:"secrets"`
}

// SecretValue is a new value of a user's secret.
type SecretValue struct {
	Value string `json:"value"` // 6 to 16,384 bytes without control characters
}
