// The story: three large examples, each with its image, its counterexample and what happened, in words.

function exampleView({ number, title, words }) {
  return make("article", { class: "example" },
    make("h3", {}, title),
    pictures(number),
    ...words.map((text) => make("p", {}, text)));
}

function storyView(examples) {
  return make("section", { id: "examples", "aria-labelledby": "examples-title" },
    make("h2", { id: "examples-title" }, examples.length === 1 ? "An example" : "Examples"),
    make("div", { class: "examples" }, ...examples.map(exampleView)),
    examples.some(({ number }) => GALLERY.columns.difference[number] !== null) ? make("p", { class: "note" },
      "In the picture of the difference, orange pixels became brighter and blue ones darker.") : null);
}
