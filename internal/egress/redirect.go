package egress

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
)

func isRedirect(resp *http.Response) bool {
	return slices.Contains([]int{301, 302, 303, 307, 308}, resp.StatusCode) && resp.Header.Get("Location") != ""
}

// redirect returns the next hop. The caller checks it like a request of the plugin.
// If there is an error, the hop holds what is known of it.
func (c *Call) redirect(h *hop, status int, location string) (*hop, error) {
	next := &hop{number: h.number + 1, target: h.target, method: h.method, header: h.header, body: h.body, clock: h.clock}
	target, err := resolve(&h.target, location)
	if err != nil {
		return next, &NetworkError{Host: h.target.hostPort(), Problem: "redirect to an invalid location: " + err.Error()}
	}

	next.target = target
	if target.origin() != h.target.origin() {
		next.header = keepAcrossOrigins(next.header)
	} else if h.param != "" {
		// The server repeats the query; the rule of the next hop decides again.
		next.target.query = removeParam(target.query, h.param)
	}
	if c.carriesSecret(&next.target) {
		next.target = h.target
		return next, &Refusal{Reason: ReasonRedirect, What: "a redirect of " + h.target.shown() + " is refused: the server put a secret into the location"}
	}

	// As in browsers and Go, only 307 and 308 keep the method and the body.
	if status <= 303 && next.method != http.MethodHead && (status == 303 || next.method == http.MethodPost) {
		next.method, next.body = http.MethodGet, nil
		next.header = next.header.Clone()
		for _, name := range []string{"Content-Type", "Content-Encoding", "Content-Language"} {
			next.header.Del(name)
		}
	}
	return next, nil
}

// carriesSecret reports whether a location, which may be escaped several times,
// contains a secret.
func (c *Call) carriesSecret(t *target) bool {
	text := t.host + t.path + "?" + t.query
	for range 4 {
		if c.mask.has(text) {
			return true
		}
		text = decodeOnce(text)
	}
	return false
}

// resolve reads a location, which can be relative.
func resolve(base *target, location string) (target, error) {
	from, err := base.url(base.query)
	if err != nil {
		return target{}, err
	}
	ref, err := url.Parse(location)
	if err != nil {
		return target{}, errors.New("not a URL")
	}
	return parseTarget(from.ResolveReference(ref).String())
}
