package main

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"slices"

	"github.com/toolhost/toolhost/guest"
)

type chartArgs struct {
	Values []float64 `json:"values" desc:"Heights of the bars, from left to right" min:"1" max:"100"`
	Height int       `json:"height" desc:"Of the image, in pixels" min:"10" max:"500" default:"100"`
}

// chart answers with content, which is an image, and has no result.
func chart(c *guest.Call, in chartArgs) (guest.None, error) {
	const bar, gap = 8, 2
	low, high := min(0, slices.Min(in.Values)), max(0, slices.Max(in.Values))
	if low == high {
		high = 1
	}
	row := func(value float64) int { return int((high/2 - value/2) / (high/2 - low/2) * float64(in.Height)) } // halves cannot overflow

	colors := color.Palette{color.White, color.RGBA{0x1f, 0x77, 0xb4, 0xff}}
	picture := image.NewPaletted(image.Rect(0, 0, len(in.Values)*(bar+gap)+gap, in.Height), colors)
	for i, value := range in.Values {
		left := gap + i*(bar+gap)
		for y := min(row(value), row(0)); y < max(row(value), row(0)); y++ {
			for x := left; x < left+bar; x++ {
				picture.SetColorIndex(x, y, 1)
			}
		}
	}

	var data bytes.Buffer
	if err := png.Encode(&data, picture); err != nil {
		return guest.None{}, err
	}
	return guest.None{}, c.Content(guest.ImageBlock(data.Bytes(), "image/png"))
}
