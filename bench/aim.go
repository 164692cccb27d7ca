package main

import (
	"fmt"
	"strconv"
	"strings"
)

// An aim is what the library aims at in a table. It is judged by the figures as
// they are shown.
type aim struct {
	text  string                              // "" where it sets no aim
	about func(name string) bool              // the rows at which it can be missed
	met   func(l, base line, all []line) bool // base is what l is set against; nil: not all rows are there to judge
}

// verdict is what there is to say of a table with these lines, with a blank
// before it.
func (a aim) verdict(all []line) string {
	if a.met == nil {
		return ""
	}
	held := 0
	var missed []string
	var base line
	for _, l := range all {
		switch {
		case l["ratio"] == "1":
			base = l
		case !a.about(l.name()):
		case a.met(l, base, all):
			held++
		default:
			missed = append(missed, `"`+l.name()+`"`)
		}
	}
	switch {
	case len(missed) == 0:
		return " Held."
	case held == 0:
		return " Missed."
	}
	others := "the other"
	if held > 1 {
		others += fmt.Sprintf(" %d", held)
	}
	return fmt.Sprintf(" Missed at %s; held at %s.", strings.Join(missed, ", "), others)
}

// A line is one of a table, its cells by the names of their columns. The first
// column has none.
type line map[string]string

func (l line) name() string { return l[""] }

// figure is what is shown in a column, which must be a number.
func (l line) figure(column string) float64 {
	x, err := strconv.ParseFloat(l[column], 64)
	if err != nil {
		panic(fmt.Sprintf("%s, %s: %v", l.name(), column, err))
	}
	return x
}

// lines reads a table in Markdown.
func lines(table string) (all []line) {
	var columns []string
	for row := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(row, "|\n"), "|")
		switch {
		case columns == nil:
			for _, c := range cells {
				columns = append(columns, strings.TrimSpace(c))
			}
		case strings.HasPrefix(row, "| "):
			l := line{}
			for i, c := range cells {
				l[columns[i]] = strings.TrimSpace(c)
			}
			all = append(all, l)
		}
	}
	return all
}

func begins(with string) func(name string) bool {
	return func(name string) bool { return strings.HasPrefix(name, with) }
}

func ends(with string) func(name string) bool {
	return func(name string) bool { return strings.HasSuffix(name, with) }
}

func named(all []line, name string) line {
	for _, l := range all {
		if l.name() == name {
			return l
		}
	}
	return nil
}
