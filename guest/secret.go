package guest

// SecretExists reports whether a secret has a value. The operator names the secret in a rule of
// the plugin's grant http, and the host adds the value to the requests that the rule allows: a
// plugin never sees it. For a secret that no rule names, the error matches [ErrDenied].
//
// A request that needs a secret without a value ends the call, and the agent learns
// what to connect. Call SecretExists first only if the tool can work without the
// secret.
func (c *Call) SecretExists(name string) (bool, error) {
	var out struct {
		Exists bool `json:"exists"`
	}
	err := c.Host("secret.exists", map[string]string{"name": name}, &out)
	return out.Exists, err
}
