package guest

import (
	"github.com/toolhost/toolhost/abi"
	"github.com/toolhost/toolhost/internal/typed"
)

// Block is one piece of content in addition to the result.
type Block = abi.Block

// TextBlock returns a text block.
func TextBlock(text string) Block { return Block{Type: "text", Text: text} }

// ImageBlock returns an image block. mimeType is the media type of the data, such as image/png.
func ImageBlock(data []byte, mimeType string) Block {
	return Block{Type: "image", Data: data, MIMEType: mimeType}
}

// AudioBlock returns an audio block. mimeType is the media type of the data, such as audio/wav.
func AudioBlock(data []byte, mimeType string) Block {
	return Block{Type: "audio", Data: data, MIMEType: mimeType}
}

// LinkBlock returns a block that links to a resource. The media type may be empty.
func LinkBlock(uri, name, mimeType string) Block {
	return Block{Type: "resource_link", URI: uri, Name: name, MIMEType: mimeType}
}

// ResourceBlock returns a block with the text of a resource. The media type may be empty.
func ResourceBlock(uri, mimeType, text string) Block {
	return Block{Type: "resource", URI: uri, MIMEType: mimeType, Text: text}
}

// Content appends a block to the result. Its errors are those of [Call.Write].
func (c *Call) Content(b Block) error {
	data, err := typed.Marshal(b)
	if err != nil {
		return err
	}
	return c.Write(abi.StreamContent, data)
}
