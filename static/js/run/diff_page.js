// @ts-check
// The page of a diff.
import { shortcut } from "../lib/keys.js";
import { diffKeys, wireDiffs } from "./diff.js";

diffKeys(wireDiffs(document.getElementById("diff")), shortcut);
