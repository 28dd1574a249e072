// What scripts may take for granted of a page's elements: which of these one has, its template says.

declare const Plot: any;

interface Element {
  dataset: DOMStringMap;
  hidden: boolean;
  disabled: boolean;
  checked: boolean;
  open: boolean;
  value: any;
  defaultValue: string;
  options: HTMLOptionsCollection;
  rows: HTMLCollectionOf<HTMLTableRowElement>;
  tBodies: HTMLCollectionOf<HTMLTableSectionElement>;
  elements: any;
  files: FileList;
  href: any;
  max: any;
  type: any;
  focus(): void;
  showModal(): void;
}

interface EventTarget extends Pick<HTMLInputElement, "id" | "type" | "tagName" | "closest" | "dataset" | "files" | "value"> {}
