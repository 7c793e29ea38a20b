import { mountTimelines } from "./mount.js";

mountTimelines(document);
