// Plugin github reads and creates issues with go-github, an ordinary client library
// that knows nothing about Toolhost. It needs the grant "http", with a rule that names
// the secret.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/go-github/v88/github"

	"github.com/toolhost/toolhost/guest"
	_ "github.com/toolhost/toolhost/guest/web"
)

type repository struct {
	Owner string `json:"owner" desc:"Whose repository it is" pattern:"^[A-Za-z0-9-]{1,39}$"`
	Repo  string `json:"repo" desc:"Its name" pattern:"^[A-Za-z0-9._-]{1,100}$"`
}

type issuesArgs struct {
	repository
	State string `json:"state,omitempty" enum:"open,closed,all" default:"open"`
	Label string `json:"label,omitempty" desc:"Only issues with this label" max:"50"`
	Limit int    `json:"limit,omitempty" desc:"Return at most so many, the newest first" min:"1" max:"100" default:"20"`
}

type issue struct {
	Number int       `json:"number"`
	Title  string    `json:"title"`
	State  string    `json:"state"`
	By     string    `json:"by,omitempty"`
	Labels []string  `json:"labels,omitempty"`
	At     time.Time `json:"at" desc:"When it was created"`
	URL    string    `json:"url,omitempty"`
	Body   string    `json:"body,omitempty"`
}

type list struct {
	Issues []issue `json:"issues"`
}

type createArgs struct {
	repository
	Title string `json:"title" min:"1" max:"256"`
	Body  string `json:"body,omitempty" max:"60000"`
}

// client returns a client without a token: the host adds the token to the requests.
func client() (*github.Client, error) {
	return github.NewClient(github.WithHTTPClient(http.DefaultClient))
}

func issues(_ *guest.Call, in issuesArgs) (list, error) {
	c, err := client()
	if err != nil {
		return list{}, err
	}
	options := &github.IssueListByRepoOptions{State: in.State, ListOptions: github.ListOptions{PerPage: in.Limit}}
	if in.Label != "" {
		options.Labels = []string{in.Label}
	}

	found, _, err := c.Issues.ListByRepo(context.Background(), in.Owner, in.Repo, options)
	if err != nil {
		return list{}, explain(err)
	}
	out := list{Issues: []issue{}}
	for _, i := range found {
		if !i.IsPullRequest() {
			out.Issues = append(out.Issues, short(i))
		}
	}
	return out, nil
}

func create(_ *guest.Call, in createArgs) (issue, error) {
	c, err := client()
	if err != nil {
		return issue{}, err
	}
	made, _, err := c.Issues.Create(context.Background(), in.Owner, in.Repo, &github.IssueRequest{Title: &in.Title, Body: &in.Body})
	if err != nil {
		return issue{}, explain(err)
	}
	return short(made), nil
}

// maxBody is the maximum length of the text of each issue in a list, in bytes.
const maxBody = 1000

func short(i *github.Issue) issue {
	out := issue{
		Number: i.GetNumber(), Title: i.GetTitle(), State: i.GetState(), By: i.GetUser().GetLogin(), At: i.GetCreatedAt().Time, URL: i.GetHTMLURL(),
		Body: i.GetBody(),
	}
	if len(out.Body) > maxBody {
		out.Body = out.Body[:maxBody] + "…"
	}
	for _, l := range i.Labels {
		out.Labels = append(out.Labels, l.GetName())
	}
	return out
}

// explain says what an agent can do about an error.
func explain(err error) error {
	if limit, ok := errors.AsType[*github.RateLimitError](err); ok {
		return fmt.Errorf("GitHub admits no more requests until %s", limit.Rate.Reset.UTC().Format(time.RFC3339))
	}
	if answer, ok := errors.AsType[*github.ErrorResponse](err); ok {
		return fmt.Errorf("GitHub answers %s: %s", answer.Response.Status, answer.Message)
	}
	return err
}

var plugin = guest.Plugin{
	Name: "github", Version: "1.0.0", Description: "Issues of repositories on GitHub.", License: "Apache-2.0",
	Needs: guest.Needs{HTTP: []guest.HTTPNeed{{URL: "https://api.github.com/repos/*", Methods: []string{"GET", "POST"}}}},
	Tools: []guest.Tool{
		{
			Name: "issues", Description: "Lists issues of a repository, the newest first.", Handler: guest.Handle(issues),
			Hints: guest.Hints{Readonly: true, Idempotent: true},
		},
		{
			Name: "create", Description: "Creates an issue in a repository.", Handler: guest.Handle(create),
			Hints: guest.Hints{Destructive: new(false)}, Approval: "required",
		},
	},
}

func init() { guest.Serve(&plugin) }

func main() {}
