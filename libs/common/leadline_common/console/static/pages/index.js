// The pages by path. A page is a component whose properties are the values of its path. Those
// with a title are in the navigation. To add a page: write `pages/NAME.js`, and add a line here.

import { Broker } from "./broker.js";
import { Brokers } from "./brokers.js";
import { Group } from "./group.js";
import { Groups } from "./groups.js";
import { History } from "./history.js";
import { Overview } from "./overview.js";
import { Partition } from "./partition.js";
import { Partitions } from "./partitions.js";
import { ClusterSettings } from "./settings.js";
import { Tasks } from "./tasks.js";
import { Topic } from "./topic.js";
import { Topics } from "./topics.js";

/** @type {{path: string, title?: string, show: (values: object) => any}[]} */
export const PAGES = [
  { path: "/", title: "Overview", show: Overview },
  { path: "/topics", title: "Topics", show: Topics },
  { path: "/topics/:topic", show: Topic },
  { path: "/topics/:topic/:tab", show: Topic },
  { path: "/topics/:topic/partitions/:partition", show: Partition },
  { path: "/partitions", title: "Partitions", show: Partitions },
  { path: "/brokers", title: "Brokers", show: Brokers },
  { path: "/brokers/:broker", show: Broker },
  { path: "/brokers/:broker/:tab", show: Broker },
  { path: "/groups", title: "Groups", show: Groups },
  { path: "/groups/:group", show: Group },
  { path: "/tasks", title: "Tasks", show: Tasks },
  { path: "/tasks/:tab", show: Tasks },
  { path: "/history", title: "History", show: History },
  { path: "/settings", title: "Settings", show: ClusterSettings },
  { path: "/history/:tab", show: History },
];
