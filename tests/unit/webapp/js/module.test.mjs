// When a source is another one, and not an edit of the one before.
import assert from "node:assert/strict";
import { test } from "node:test";
import { replaced } from "../../../../static/tasks/module.js";

const SOURCE = "import torch\nfrom torch import nn\n\n\nclass Net(nn.Module):\n    def __init__(self, width):\n        super().__init__()\n";

test("an edit is an edit wherever it is, and the task written under a module too", () => {
  assert.equal(replaced("", SOURCE), false);
  assert.equal(replaced(SOURCE, SOURCE), false);
  assert.equal(replaced(SOURCE, SOURCE.replace("width", "width: int = 64")), false);
  assert.equal(replaced(SOURCE, `"""About."""\n${SOURCE}`), false);
  assert.equal(replaced(SOURCE, `${SOURCE}\n# --- Written\n${SOURCE}`), false);
});

test("a source pasted over it is another one", () => {
  assert.equal(replaced(SOURCE, "import math\n\nclass Other:\n    pass\n"), true);
  assert.equal(replaced(SOURCE, ""), true);
});
