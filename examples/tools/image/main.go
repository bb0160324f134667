// Plugin image resizes and converts images.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"

	"golang.org/x/image/draw"

	"github.com/toolhost/toolhost/examples/tools/internal/folder"
	"github.com/toolhost/toolhost/guest"
)

// Limits with which images fit into the memory that the tool requests, including
// garbage.
const (
	memory    = 256 << 20 // bytes of memory
	maxFile   = 16 << 20  // bytes in a file
	maxPixels = 16 << 20  // pixels in an image, of up to 4 bytes each
	maxResult = 4 << 20   // pixels in a result, of up to 4 bytes each
)

type source struct {
	Data []byte `json:"data,omitempty" desc:"PNG, JPEG or GIF in base64; or give file"`
	File string `json:"file,omitempty" desc:"File in the granted folder"`
}

type images struct{ folder folder.Folder }

// open reads an image and determines its size, without decoding the pixels.
func (i images) open(from source) (data []byte, size image.Config, format string, err error) {
	if data = from.Data; (len(data) == 0) == (from.File == "") {
		return nil, size, "", errors.New("give either data or file")
	}
	if from.File != "" {
		if data, err = i.folder.Read(from.File, maxFile); err != nil {
			return nil, size, "", err
		}
	}
	size, format, err = image.DecodeConfig(bytes.NewReader(data))
	if errors.Is(err, image.ErrFormat) {
		return nil, size, "", errors.New("not a PNG, JPEG or GIF")
	}
	if err != nil {
		return nil, size, "", fmt.Errorf("the image is broken: %w", err)
	}
	return data, size, format, nil
}

type infoResult struct {
	Width  int    `json:"width" desc:"Pixels"`
	Height int    `json:"height" desc:"Pixels"`
	Format string `json:"format" enum:"png,jpeg,gif"`
	Bytes  int    `json:"bytes"`
}

func (i images) info(_ *guest.Call, in source) (out infoResult, _ error) {
	data, size, format, err := i.open(in)
	if err != nil {
		return out, err
	}
	return infoResult{size.Width, size.Height, format, len(data)}, nil
}

type resizeArgs struct {
	source
	Width   int    `json:"width,omitempty" desc:"Pixels; follows from the height if left out" min:"0" max:"10000"`
	Height  int    `json:"height,omitempty" desc:"Pixels; follows from the width if left out" min:"0" max:"10000"`
	Fit     string `json:"fit" desc:"If both are given: contain keeps all of the image within them, cover fills them and cuts off what is over, stretch changes the proportions" enum:"contain,cover,stretch" default:"contain"`
	Format  string `json:"format,omitempty" desc:"Of the result; that of the image if left out" enum:"png,jpeg,gif"`
	Quality int    `json:"quality" desc:"Of a JPEG" min:"1" max:"100" default:"85"`
}

func (i images) resize(c *guest.Call, in resizeArgs) (out infoResult, _ error) {
	data, size, format, err := i.open(in.source)
	if err != nil {
		return out, err
	}
	if pixels := int64(size.Width) * int64(size.Height); size.Width <= 0 || size.Height <= 0 || pixels > maxPixels {
		return out, fmt.Errorf("the image has %d × %d pixels: at most %d in all can be read", size.Width, size.Height, maxPixels)
	}
	target, part := scale(size.Width, size.Height, in)
	if target.X*target.Y > maxResult {
		return out, fmt.Errorf("the result would have %d × %d pixels: at most %d in all", target.X, target.Y, maxResult)
	}
	picture, _, err := image.Decode(bytes.NewReader(data))
	if err != nil {
		return out, fmt.Errorf("the image is broken: %w", err)
	}
	if err := c.Progress(1, 2, "decoded"); err != nil {
		return out, err
	}

	if target != (image.Point{size.Width, size.Height}) {
		picture = resample(picture, part.Add(picture.Bounds().Min), target)
	}
	if in.Format != "" {
		format = in.Format
	}
	var file bytes.Buffer
	if err := encode(&file, picture, format, in.Quality); err != nil {
		return out, err
	}
	return infoResult{target.X, target.Y, format, file.Len()}, c.Content(guest.ImageBlock(file.Bytes(), "image/"+format))
}

// scale returns the size of the result, and the part of the image that the result
// shows.
func scale(width, height int, in resizeArgs) (target image.Point, part image.Rectangle) {
	part = image.Rect(0, 0, width, height)
	along := func(n, of, to int) int { return max(1, (n*to+of/2)/of) } // n in the proportion of to and of
	switch {
	case in.Width == 0 && in.Height == 0:
		return image.Pt(width, height), part
	case in.Height == 0:
		return image.Pt(in.Width, along(height, width, in.Width)), part
	case in.Width == 0:
		return image.Pt(along(width, height, in.Height), in.Height), part
	case in.Fit == "stretch":
		return image.Pt(in.Width, in.Height), part
	case in.Fit == "cover":
		if w := along(in.Width, in.Height, height); w < width {
			part = image.Rect((width-w)/2, 0, (width-w)/2+w, height)
		} else if h := along(in.Height, in.Width, width); h < height {
			part = image.Rect(0, (height-h)/2, width, (height-h)/2+h)
		}
		return image.Pt(in.Width, in.Height), part
	default:
		if h := along(height, width, in.Width); h <= in.Height {
			return image.Pt(in.Width, h), part
		}
		return image.Pt(min(in.Width, along(width, height, in.Height)), in.Height), part
	}
}

// resample draws a part of an image at another size. [draw.CatmullRom] looks best, but
// its memory grows with the product of both sizes. So a large image is shrunk first,
// and a simpler scaler is used if the memory would still be too much.
func resample(picture image.Image, part image.Rectangle, target image.Point) image.Image {
	if by := min(part.Dx()/target.X, part.Dy()/target.Y); by >= 2 {
		picture = shrink(picture, part, by)
		part = picture.Bounds()
	}

	scaled := image.NewNRGBA(image.Rectangle{Max: target})
	var scaler draw.Scaler = draw.CatmullRom
	if target.X*part.Dy() > 1<<20 { // of 32 bytes each
		scaler = draw.ApproxBiLinear
	}
	scaler.Scale(scaled, scaled.Bounds(), picture, part, draw.Src, nil)
	return scaled
}

// shrink turns each square of pixels into one pixel with the average color.
func shrink(picture image.Image, part image.Rectangle, by int) image.Image {
	size := image.Pt(part.Dx()/by, part.Dy()/by)
	small := image.NewRGBA(image.Rectangle{Max: size})
	strip := image.NewRGBA(image.Rect(0, 0, size.X*by, by)) // fast to read, and small
	for y := range size.Y {
		draw.Draw(strip, strip.Bounds(), picture, part.Min.Add(image.Pt(0, y*by)), draw.Src)
		for x := range size.X {
			var sum [4]int
			for row := range by {
				at := strip.PixOffset(x*by, row)
				for i, value := range strip.Pix[at : at+4*by] {
					sum[i%4] += int(value)
				}
			}
			for i := range sum {
				small.Pix[small.PixOffset(x, y)+i] = uint8((sum[i] + by*by/2) / (by * by))
			}
		}
	}
	return small
}

func encode(file *bytes.Buffer, picture image.Image, format string, quality int) error {
	switch format {
	case "jpeg":
		if opaque, ok := picture.(interface{ Opaque() bool }); !ok || !opaque.Opaque() {
			flat := image.NewRGBA(picture.Bounds()) // a JPEG has no transparency: on white
			draw.Draw(flat, flat.Bounds(), image.NewUniform(color.White), image.Point{}, draw.Src)
			draw.Draw(flat, flat.Bounds(), picture, picture.Bounds().Min, draw.Over)
			picture = flat
		}
		return jpeg.Encode(file, picture, &jpeg.Options{Quality: quality})
	case "gif":
		return gif.Encode(file, picture, nil)
	default:
		return png.Encode(file, picture)
	}
}

func newPlugin(work folder.Folder) *guest.Plugin {
	i := images{work}
	closed := false
	reads := guest.Hints{Readonly: true, Idempotent: true, OpenWorld: &closed}
	dot := []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x06\x00\x00\x00\x1f\x15\xc4\x89\x00\x00\x00\x0dIDATx\x9cc\xf8\xcf\xc0\xf0\x1f\x00\x05\x00\x01\xff\x89\x99=\x1d\x00\x00\x00\x00IEND\xaeB`\x82")
	return &guest.Plugin{
		Name: "image", Version: "1.0.0", Description: "Resizes and converts images.", License: "Apache-2.0",
		Tools: []guest.Tool{
			{
				Name: "resize", Description: "Resizes or converts a PNG, JPEG or GIF, and shows the result. Of an animation it takes the first picture.",
				Handler: guest.Handle(i.resize), Hints: reads, Limits: guest.Limits{MemoryBytes: memory},
				Examples: []guest.Example{
					{Name: "neither", Args: resizeArgs{Fit: "contain", Quality: 85}, Error: "give either data or file"},
					{Name: "a text", Args: resizeArgs{source: source{Data: []byte("hello")}, Fit: "contain", Quality: 85}, Error: "not a PNG, JPEG or GIF"},
				},
			},
			{
				Name: "info", Description: "Tells the size and format of a PNG, JPEG or GIF.",
				Handler: guest.Handle(i.info), Hints: reads,
				Examples: []guest.Example{{Name: "a dot", Args: source{Data: dot}, Result: infoResult{1, 1, "png", len(dot)}}},
			},
		},
	}
}

func init() { guest.Serve(newPlugin(folder.Path)) }

func main() {}
