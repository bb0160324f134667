package mcpapi

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/server"
)

// connectLimit is how long a call waits for the secret after its user has agreed to open
// the page. A client that gets no progress is answered earlier.
const connectLimit = 10 * time.Minute

// connector returns Connect of [server.Request]; nil if the client cannot open pages.
func (k *asker) connector() func(context.Context, server.SecretNeed) error {
	if !k.who.opens {
		return nil
	}
	return k.connect
}

// connect asks the client's user to open the page for a secret, and waits until the
// secret is set. Since 2026-07-28 the question is the answer to the call; when the client
// repeats the call, the user has agreed and is about to set the secret. Before that date,
// the server asks while the call waits, and notifies the client when the secret is set.
func (k *asker) connect(ctx context.Context, need server.SecretNeed) error {
	key := "toolhost/secret/" + need.Name // keys of plugins have no slash
	params := &mcp.ElicitParams{Mode: "url", URL: need.URL, Message: connectMessage(k.tool, need)}

	asked := secretDigest(key)
	answer, known := k.take(asked)
	switch {
	case k.who.modern && !known:
		k.want(mcp.InputRequestMap{key: params}, map[string]string{key: asked})
		k.cancel(errAsked)
		return server.ErrAskAgain
	case !k.who.modern:
		params.ElicitationID = need.URL[strings.LastIndex(need.URL, "/")+1:]
		result, err := k.session.Elicit(ctx, params)
		if err != nil {
			return err
		}
		answer = toAnswer(result)
	}
	if answer.Action != abi.AnswerAccept {
		return fmt.Errorf("%w: the answer was %q", server.ErrNotConnected, answer.Action)
	}

	limit := time.NewTimer(k.patience)
	defer limit.Stop()
	select {
	case <-need.Set:
	case <-limit.C:
		return fmt.Errorf("%w within %v", server.ErrNotConnected, k.patience)
	case <-ctx.Done():
		return ctx.Err()
	}
	if !k.who.modern {
		_ = k.session.NotifyElicitationComplete(ctx, &mcp.ElicitationCompleteParams{ElicitationID: params.ElicitationID}) // if the client is gone, ctx ends
	}
	return nil
}

// secretDigest returns the digest of the question for a secret.
func secretDigest(key string) string { return hex.EncodeToString(digestOf(key)) }

// connectMessage returns the text that the user reads next to the address.
func connectMessage(tool string, need server.SecretNeed) string {
	return fmt.Sprintf("%s needs your secret %q for %s. Set it on this page of Toolhost. Neither the agent nor this client sees it.",
		tool, need.Name, strings.Join(need.Hosts, ", "))
}
