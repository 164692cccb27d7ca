package main

import (
	"bytes"
	"fmt"
	"image/color"
	"io"
	"math"
	"path/filepath"
	"time"

	stdfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/retryafter-go/retryafter/cmd/retryafter/internal/fleet"
)

// A picture is the file that a simulation is drawn into. It is opened before the
// simulation begins, so that nobody waits for what can't be written.
type picture struct {
	file *output
	make func(width, height vg.Length) canvas
}

type canvas interface {
	vg.CanvasSizer
	io.WriterTo
}

// openPicture opens the file of --plot, which is none where path is "".
func openPicture(path string) (*picture, error) {
	var p picture
	switch extension := filepath.Ext(path); {
	case path == "":
		return nil, nil
	case extension == ".svg":
		p.make = func(w, h vg.Length) canvas { return vgsvg.New(w, h) }
	case extension == ".png":
		p.make = func(w, h vg.Length) canvas { return vgimg.PngCanvas{Canvas: vgimg.New(w, h)} }
	default:
		return nil, fmt.Errorf("--plot: %q ends neither in .svg nor in .png", path)
	}
	var err error
	if p.file, err = openOutput(path); err != nil {
		return nil, fmt.Errorf("--plot: %w", err)
	}
	return &p, nil
}

// discard leaves the file as it was, unless it was drawn.
func (p *picture) discard() {
	if p != nil {
		p.file.discard()
	}
}

// draw fills the file.
func (p *picture) draw(s *simulation) error {
	if p == nil {
		return nil
	}
	content, err := s.draw(p.make)
	if err != nil {
		return err
	}
	if _, err = p.file.Write(content); err == nil {
		err = p.file.commit()
	}
	if err != nil {
		return fmt.Errorf("--plot: %w", err)
	}
	return nil
}

// Sizes, in the points of which there are 72 an inch; a PNG has 96 pixels an
// inch, so that a picture of 5 rules has 1000 by 560.
const (
	pictureWidth = 750
	headHeight   = 48
	panelHeight  = 67
	axisHeight   = 37
	margin       = 9
)

// The colours are of the palette of Okabe and Ito, which the colour-blind can
// tell apart.
var (
	served  = color.RGBA{0x00, 0x72, 0xb2, 0xff}
	refused = color.RGBA{0xe6, 0x9f, 0x00, 0xff}
	early   = color.RGBA{0x00, 0x00, 0x00, 0xff}
	closed  = color.RGBA{0xec, 0xec, 0xec, 0xff}
	grid    = color.RGBA{0xd0, 0xd0, 0xd0, 0xff}
	ink     = color.RGBA{0x22, 0x22, 0x22, 0xff}
)

func style(size vg.Length, bold bool) text.Style {
	f := font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
	if bold {
		f.Weight = stdfont.WeightBold
	}
	return text.Style{Color: ink, Font: f, Handler: plot.DefaultTextHandler, YAlign: draw.YCenter}
}

func (s *simulation) draw(make func(w, h vg.Length) canvas) ([]byte, error) {
	height := vg.Length(headHeight + panelHeight*len(s.results) + axisHeight)
	to := make(pictureWidth, height)
	c := draw.New(to)
	c.FillPolygon(color.White, corners(c.Rectangle))
	c = draw.Crop(c, margin, -margin, 0, 0)
	s.drawHead(c)
	tallest, latest := s.extent()
	for i, r := range s.results {
		top := vg.Length(headHeight + panelHeight*i)
		bottom := height - top - panelHeight
		s.drawPanel(draw.Crop(c, 14, 0, bottom, -top), r, tallest, latest, i == len(s.results)-1)
	}
	label := style(9, false)
	label.Rotation, label.XAlign = math.Pi/2, draw.XCenter
	c.FillText(label, vg.Point{X: c.Min.X + 5, Y: axisHeight + (height-headHeight-axisHeight)/2}, fmt.Sprintf("requests in %g s (log scale)", s.bar().Seconds()))

	var b bytes.Buffer
	if _, err := to.WriteTo(&b); err != nil {
		return nil, err
	}
	// Who has no Liberation Sans has one of the same measures.
	return bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans;"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;")), nil
}

// bar is the time that one bar stands for.
func (s *simulation) bar() time.Duration {
	if s.name == "herd" {
		return fleet.Window
	}
	return time.Second
}

// bars adds windows up to bars.
func (s *simulation) bars(windows []fleet.Arrivals) (all, early, served []float64) {
	each := int(s.bar() / fleet.Window)
	n := (len(windows) + each - 1) / each
	all, early, served = make([]float64, n), make([]float64, n), make([]float64, n)
	for i, w := range windows {
		all[i/each] += float64(w.All)
		early[i/each] += float64(w.Early)
		served[i/each] += float64(w.Served)
	}
	return all, early, served
}

// extent is what the axes of all panels reach to.
func (s *simulation) extent() (tallest, latest float64) {
	tallest = 10
	for _, r := range s.results {
		bars, _, _ := s.bars(r.Windows)
		for _, n := range bars {
			tallest = max(tallest, n)
		}
		latest = max(latest, float64(len(bars))*s.bar().Seconds())
	}
	return math.Pow(10, math.Ceil(math.Log10(tallest))), latest
}

// widest is how much wider than Liberation Sans a font may be that stands in for
// it, as DejaVu Sans and Verdana.
const widest = 1.2

func (s *simulation) drawHead(c draw.Canvas) {
	c.FillText(style(11, true), vg.Point{X: c.Min.X, Y: c.Max.Y - 15}, s.about)
	x, y := c.Min.X, c.Max.Y-34
	for _, entry := range []struct {
		colour color.Color
		text   string
	}{
		{served, "served"},
		{refused, "refused"},
		{early, "too early, before the instant that the server named"},
		{closed, "the server refuses everything"},
	} {
		if entry.colour == closed && s.scenario.Opens == s.scenario.Closes {
			continue
		}
		c.FillPolygon(entry.colour, corners(vg.Rectangle{Min: vg.Point{X: x, Y: y - 4}, Max: vg.Point{X: x + 11, Y: y + 4}}))
		words := style(9, false)
		c.FillText(words, vg.Point{X: x + 15, Y: y}, entry.text)
		x += 15 + widest*words.Width(entry.text) + 14
	}
}

// drawPanel draws r; the last panel has the axis of time that all share.
func (s *simulation) drawPanel(c draw.Canvas, r *fleet.Result, tallest, latest float64, last bool) {
	line := vg.Point{X: c.Min.X + 8, Y: c.Max.Y - 9}
	c.FillText(style(10, true), line, r.Rule.Name)
	line.X += 130
	c.FillText(style(9, false), line, fmt.Sprintf("worst 100 ms since %s: %d · early: %d · attempts a call: %.2f · gave up: %d",
		s.since, r.Worst, r.Early, r.ExtraLoad(), r.GaveUp))

	p := plot.New()
	p.BackgroundColor = nil
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, latest, least, tallest
	p.X.Padding, p.Y.Padding = 0, 0
	p.Y.Scale = plot.LogScale{}
	p.Y.Tick.Marker = decades{}
	p.Y.Tick.Label = style(8, false)
	p.Y.Tick.Label.XAlign = draw.XRight
	p.Y.Color, p.Y.Tick.Color = ink, ink
	p.HideX()
	p.Add(plotted(func(c draw.Canvas, p *plot.Plot) {
		x, y := p.Transforms(&c)
		c.FillPolygon(closed, corners(vg.Rectangle{
			Min: vg.Point{X: x(s.scenario.Closes.Seconds()), Y: c.Min.Y},
			Max: vg.Point{X: x(min(s.scenario.Opens.Seconds(), latest)), Y: c.Max.Y}}))
		for n := 1.0; n <= tallest; n *= 10 {
			c.StrokeLine2(draw.LineStyle{Color: grid, Width: 0.4}, c.Min.X, y(n), c.Max.X, y(n))
		}
		all, soon, good := s.bars(r.Windows)
		hide(all, soon)
		hide(all, good)
		hide(soon, good)
		for _, layer := range []struct {
			bars   []float64
			colour color.Color
		}{{all, refused}, {soon, early}, {good, served}} {
			for _, outline := range outlines(layer.bars, s.bar().Seconds(), x, y) {
				c.FillPolygon(layer.colour, outline)
			}
		}
		c.StrokeLine2(draw.LineStyle{Color: ink, Width: 0.5}, c.Min.X, c.Min.Y, c.Max.X, c.Min.Y)
		if last {
			drawTime(c, x, latest)
		}
	}))
	p.Draw(draw.Crop(c, 0, -margin, 0, -18))
}

// drawTime draws the axis below c.
func drawTime(c draw.Canvas, x func(float64) vg.Length, latest float64) {
	label := style(8, false)
	label.XAlign, label.YAlign = draw.XCenter, draw.YTop
	for _, tick := range (plot.DefaultTicks{}).Ticks(0, latest) {
		length := vg.Length(4)
		if tick.IsMinor() {
			length = 2
		} else {
			c.FillText(label, vg.Point{X: x(tick.Value), Y: c.Min.Y - 6}, fmt.Sprintf("%g", tick.Value))
		}
		c.StrokeLine2(draw.LineStyle{Color: ink, Width: 0.5}, x(tick.Value), c.Min.Y, x(tick.Value), c.Min.Y-length)
	}
	label = style(9, false)
	label.XAlign, label.YAlign = draw.XCenter, draw.YTop
	c.FillText(label, vg.Point{X: (c.Min.X + c.Max.X) / 2, Y: c.Min.Y - 18}, "time (s)")
}

// hide takes out of bars what front covers, so that no edge of it shows.
func hide(bars, front []float64) {
	for i, n := range front {
		if n == bars[i] {
			bars[i] = 0
		}
	}
}

// least is where the axis begins, so that a bar of one request can be seen.
const least = 0.5

// outlines are what bars cover, each row of them without a gap by itself.
func outlines(bars []float64, width float64, x, y func(float64) vg.Length) (all [][]vg.Point) {
	var row []vg.Point
	for i := 0; i <= len(bars); i++ {
		left := x(float64(i) * width)
		if i < len(bars) && bars[i] > 0 {
			if row == nil {
				row = append(row, vg.Point{X: left, Y: y(least)})
			}
			row = append(row, vg.Point{X: left, Y: y(bars[i])}, vg.Point{X: x(float64(i+1) * width), Y: y(bars[i])})
			continue
		}
		if row != nil {
			all = append(all, append(row, vg.Point{X: left, Y: y(least)}))
			row = nil
		}
	}
	return all
}

func corners(r vg.Rectangle) []vg.Point {
	return []vg.Point{r.Min, {X: r.Max.X, Y: r.Min.Y}, r.Max, {X: r.Min.X, Y: r.Max.Y}}
}

// plotted is a plot.Plotter.
type plotted func(draw.Canvas, *plot.Plot)

func (f plotted) Plot(c draw.Canvas, p *plot.Plot) { f(c, p) }

// decades are ticks at the powers of ten, of which every second has a label
// where there are many.
type decades struct{}

func (decades) Ticks(_, most float64) (ticks []plot.Tick) {
	step := 1
	if most > 1e4 {
		step = 2
	}
	for i, n := 0, 1.0; n <= most; i, n = i+1, n*10 {
		tick := plot.Tick{Value: n}
		if i%step == 0 {
			tick.Label = fmt.Sprintf("%.0f ", n) // with room for wider digits
		}
		ticks = append(ticks, tick)
	}
	return ticks
}
