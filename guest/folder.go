package guest

// folders is a Host in which the plugin's folders have different paths than in the sandbox.
type folders interface {
	Folder(path string) string
}

// Folder returns the path at which functions of package os find a folder that the plugin
// needs. In the sandbox it is the path itself. In a test it is the folder that
// guesttest.Host.Folders maps it to.
func (c *Call) Folder(path string) string {
	if f, ok := c.host.(folders); ok {
		return f.Folder(path)
	}
	return path
}
