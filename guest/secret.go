package guest

// SecretExists reports whether a secret has a value. The operator names it in a rule of
// the plugin's grant http, and the host puts it into the requests that the rule admits: a
// plugin never sees it. Another name is refused with an error that matches [ErrDenied].
//
// A request that needs a secret without a value ends the call, and the agent learns what
// to connect. Ask first only if the tool can do without it.
func (c *Call) SecretExists(name string) (bool, error) {
	var out struct {
		Exists bool `json:"exists"`
	}
	err := c.Host("secret.exists", map[string]string{"name": name}, &out)
	return out.Exists, err
}
