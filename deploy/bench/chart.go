package bench

import (
	_ "embed"
	"encoding/xml"
	"fmt"
	"math"
	"os"
	"strings"
	"text/template"
)

// chartTemplateText is the template of the chart. The chart has two panels, one below the other,
// and its colours follow the reader's preference for light or dark.
//
//go:embed chart.svg.tmpl
var chartTemplateText string

var chartTemplate = template.Must(template.New("chart").Funcs(template.FuncMap{
	"text": escapeXML,
	"add":  func(a, b int) int { return a + b },
	"sub":  func(a, b int) int { return a - b },
}).Parse(chartTemplateText))

// The dimensions of the chart in pixels.
const (
	chartWidth        = 760
	chartBarsX        = 190 // left end of the bars; the names are to the left of it
	chartMaxBarWidth  = 490 // length of the longest bar
	chartRowHeight    = 30
	panelHeaderHeight = 46
	panelGap          = 18
)

// panel is one bar chart, with a bar for each variant.
type panel struct {
	Title string
	Y     int
	BareX float64 // x coordinate of the value of variantBare
	Bars  []bar
}

// bar is the bar of one variant in a panel. It shows the median and the quartiles.
type bar struct {
	Name      string
	Median    float64
	Y         int
	Width     float64
	Low, High float64 // x coordinates of the quartiles
	Ours      bool
}

// writeChart writes an SVG file that compares each variant with the baseline, variantBare.
func writeChart(file string, names []string, turns map[string][]turnResult) error {
	rate := func(name string) quartiles {
		return ratioQuartiles(turns[name], turns[variantBare], turnResult.requestsPerSecond)
	}
	cost := func(name string) quartiles {
		return ratioQuartiles(turns[name], turns[variantBare], turnResult.cpuPerThousandRequests)
	}
	first := newPanel("Requests per second, × bare: more is better", 0, names, rate)
	second := newPanel("CPU for each request, × bare: less is better", first.height()+panelGap,
		names, cost)
	var out strings.Builder
	err := chartTemplate.Execute(&out, struct {
		Width, Height, Left int
		Panels              []panel
	}{chartWidth, second.Y + second.height(), chartBarsX, []panel{first, second}})
	if err != nil {
		return fmt.Errorf("draw the chart: %w", err)
	}
	return os.WriteFile(file, []byte(out.String()), 0o644) //nolint:gosec // for readers
}

func newPanel(title string, y int, names []string, value func(name string) quartiles) panel {
	most := 0.0
	for _, name := range names {
		most = max(most, value(name).high)
	}
	scale := chartMaxBarWidth / math.Max(most, 1)
	p := panel{Title: title, Y: y, BareX: chartBarsX + scale}
	for i, name := range names {
		q := value(name)
		p.Bars = append(p.Bars, bar{
			Name:   name,
			Median: q.median,
			Y:      y + panelHeaderHeight + i*chartRowHeight,
			Ours:   strings.HasPrefix(name, "hookstart"),
			Width:  q.median * scale,
			Low:    chartBarsX + q.low*scale,
			High:   chartBarsX + q.high*scale,
		})
	}
	return p
}

// Bottom returns the y coordinate at which the panel's vertical line ends. The line marks the value
// of variantBare.
func (p panel) Bottom() int { return p.Y + p.height() - chartRowHeight/3 }

func (p panel) height() int { return panelHeaderHeight + len(p.Bars)*chartRowHeight }

func escapeXML(s string) (string, error) {
	var out strings.Builder
	err := xml.EscapeText(&out, []byte(s))
	return out.String(), err
}
