// Checks objects of Kubernetes: that all fields are known, have the right types, and that none is missing.
//
// usage: node check_k8s.mjs FOLDER FILE...     FOLDER has node_modules
//
// Unknown fields are found by the types (the compiler refuses a field that an interface has not), values by the validators of
// the same package. A line for each finding; exit status 1 if there are any.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { join, resolve } from "node:path";

const [folder, ...files] = process.argv.slice(2);
const modules = resolve(folder);
const require = createRequire(join(modules, "check_k8s.cjs"));
const ts = require("typescript");
const { parseAllDocuments } = require("yaml");

const findings = [];
const sources = [];
for (const file of files) {
  for (const [index, document] of parseAllDocuments(readFileSync(file, "utf8")).entries()) {
    const where = `${file}, object ${index + 1}`;
    findings.push(...document.errors.map((error) => `${where}: ${error.message}`));
    if (document.errors.length > 0) continue;
    const object = document.toJS();
    let models;
    try {
      models = require(`kubernetes-models/${object.apiVersion}`);
    } catch {
      findings.push(`${where}: there is no apiVersion ${object.apiVersion}`);
      continue;
    }
    if (models[object.kind] === undefined) {
      findings.push(`${where}: ${object.apiVersion} has no kind ${object.kind}`);
      continue;
    }
    try {
      new models[object.kind](object).validate();
    } catch (error) {
      findings.push(`${where}: ${error.message}`);
    }
    const type = `import type { I${object.kind} as Kind } from "kubernetes-models/${object.apiVersion}";\n`;
    // One file each: the compiler tells only the first unknown field of an object.
    sources.push([where, `${type}export const object: Kind = ${JSON.stringify(object, null, 1)};\n`]);
  }
}

const options = { noEmit: true, strict: true, skipLibCheck: true, module: ts.ModuleKind.ESNext, target: ts.ScriptTarget.ES2022,
  moduleResolution: ts.ModuleResolutionKind.Bundler, types: [] };
const host = ts.createCompilerHost(options);
const texts = new Map(sources.map(([, text], index) => [join(modules, `object${index}.ts`), text]));
const { getSourceFile, fileExists, readFile } = host;
host.getSourceFile = (name, ...rest) =>
  texts.has(name) ? ts.createSourceFile(name, texts.get(name), ts.ScriptTarget.ES2022) : getSourceFile.call(host, name, ...rest);
host.fileExists = (name) => texts.has(name) || fileExists.call(host, name);
host.readFile = (name) => texts.get(name) ?? readFile.call(host, name);
const names = [...texts.keys()];
for (const diagnostic of ts.getPreEmitDiagnostics(ts.createProgram(names, options, host))) {
  const where = sources[names.indexOf(diagnostic.file?.fileName)]?.[0] ?? "the types";
  findings.push(`${where}: ${ts.flattenDiagnosticMessageText(diagnostic.messageText, " ")}`);
}

findings.forEach((finding) => console.log(finding));
console.log(`${sources.length} objects, ${findings.length} findings`);
process.exit(findings.length > 0 ? 1 : 0);
