package guest

// folders is a Host in which the plugin's folders have other paths.
type folders interface {
	Folder(path string) string
}

// Folder returns where a folder of the plugin's needs is, for functions of package os. In
// the sandbox it is the path itself. In a test it is the folder that
// guesttest.Host.Folders has in its place.
func (c *Call) Folder(path string) string {
	if f, ok := c.host.(folders); ok {
		return f.Folder(path)
	}
	return path
}
