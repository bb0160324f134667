package main

import (
	"bytes"
	"image"
	"image/png"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/toolhost/toolhost/examples/plugins/internal/readme"
	"github.com/toolhost/toolhost/guest/guesttest"
)

func TestPlugin(t *testing.T) { guesttest.Check(t, &plugin) }

// A chart is an image in the content of the answer, which has no result.
func TestChart(t *testing.T) {
	out := guesttest.Call(&plugin, "chart", map[string]any{"values": []float64{1, -1, 2, 0}, "height": 30})
	require.True(t, out.IsSuccess(), out)
	require.Nil(t, out.Value)
	require.Len(t, out.Content, 1)
	require.Equal(t, "image/png", out.Content[0].MIMEType)

	picture, err := png.Decode(bytes.NewReader(out.Content[0].Data))
	require.NoError(t, err)
	require.Equal(t, image.Rect(0, 0, 42, 30), picture.Bounds())
	for i, rows := range [][2]int{{10, 20}, {20, 30}, {0, 20}, {0, 0}} { // of the bars
		for y := range 30 {
			r, _, _, _ := picture.At(2+10*i, y).RGBA()
			require.Equal(t, rows[0] <= y && y < rows[1], r != 0xffff, "bar %d, row %d", i, y)
		}
	}
}

func TestREADME(t *testing.T) { readme.Check(t, &plugin) }
