-- The image with its digest, from the first attempt that has found out which one the reference means. All later ones pull it.
alter table template_builds add column image text;
